package io.kvilt.bench.streams;

import io.kvilt.kafka.KviltConfig;
import io.kvilt.kafka.KviltDslStoreSuppliers;
import io.kvilt.kafka.KviltStores;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.SplittableRandom;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.test.InternalMockProcessorContext;

/**
 * State stores of Kafka Streams on Kvilt and on RocksDB, without a broker.
 *
 * <pre>
 * cargo xtask java --jar
 * mvn -B -q -f java/pom.xml -Pbench -DskipTests package
 * java -Xmx1g -cp 'java/bench-streams/target/*:java/bench-streams/target/lib/*' \
 *     io.kvilt.bench.streams.StreamsBench topology|restore|resident [count] [rounds]
 * </pre>
 *
 * <ul>
 *   <li>{@code topology}: records a second through {@code TopologyTestDriver}, which commits behind each of them, of a
 *       count of words and of a windowed join. The count is that of records; 20,000 without one.
 *   <li>{@code restore}: seconds to restore a changelog of so many MiB, 1,024 without one, in batches of 1,000 records.
 *   <li>{@code resident}: MiB of resident memory with so many stores, 50 without a number, of 20 MB of rows each, at
 *       most, beyond those of the process before the first; a process for each kind of store.
 * </ul>
 */
public final class StreamsBench {
    private static final String ROCKSDB =
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$RocksDBDslStoreSuppliers";
    private static final long BUDGET_BYTES = 256L << 20;
    private static final int RESTORED_TOGETHER = 1000;
    private static final int VALUE_BYTES = 800;
    private static final int ROWS_OF_A_STORE = 25_000;
    private static final int WORDS = 10_000;

    private StreamsBench() {}

    /**
     * Measures, and prints a table.
     *
     * @param arguments what to measure, how much, and in how many rounds
     * @throws Exception if a store fails
     */
    public static void main(String[] arguments) throws Exception {
        String what = arguments.length > 0 ? arguments[0] : "";
        int count = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 0;
        int rounds = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 3;
        switch (what) {
            case "topology" -> topologies(count > 0 ? count : 20_000, rounds);
            case "restore" -> restores(count > 0 ? count : 1024, rounds);
            case "resident" -> residents(count > 0 ? count : 50);
            case "resident-kvilt" -> resident(count, true);
            case "resident-rocksdb" -> resident(count, false);
            default -> throw new IllegalArgumentException("say topology, restore or resident");
        }
    }

    private static void topologies(int records, int rounds) throws IOException {
        System.out.println("| topology | Kvilt, records/s | RocksDB | ratio |");
        System.out.println("| --- | ---: | ---: | ---: |");
        for (boolean isJoin : new boolean[] {false, true}) {
            double[] ours = new double[rounds];
            double[] theirs = new double[rounds];
            for (int round = -1; round < rounds; round++) {
                double our = topology(isJoin, KviltDslStoreSuppliers.class.getName(), records);
                double their = topology(isJoin, ROCKSDB, records);
                if (round >= 0) {
                    ours[round] = our;
                    theirs[round] = their;
                }
            }
            String name = isJoin ? "windowed join" : "count of words";
            System.err.printf("%s: %s, %s%n", name, Arrays.toString(ours), Arrays.toString(theirs));
            line(name, median(ours), median(theirs), median(ours) / median(theirs));
        }
    }

    private static double topology(boolean isJoin, String suppliers, int records) throws IOException {
        Path place = Files.createTempDirectory("kvilt-bench");
        Properties properties = properties(place);
        properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, suppliers);
        try (TopologyTestDriver driver = new TopologyTestDriver(isJoin ? join() : words(), properties)) {
            StringSerializer strings = new StringSerializer();
            TestInputTopic<String, String> left = driver.createInputTopic("left", strings, strings);
            TestInputTopic<String, String> right = isJoin ? driver.createInputTopic("right", strings, strings) : null;
            SplittableRandom random = new SplittableRandom(1);
            long begun = System.nanoTime();
            for (int i = 0; i < records; i++) {
                String word = "word" + random.nextInt(WORDS);
                if (isJoin) {
                    (i % 2 == 0 ? left : right).pipeInput(word, "value" + i, 1000L + i);
                } else {
                    left.pipeInput("line" + i, word + " word" + random.nextInt(WORDS), 1000L + i);
                }
            }
            return records * 1e9 / (System.nanoTime() - begun);
        } finally {
            remove(place);
        }
    }

    private static Topology words() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream("left");
        lines.flatMap((key, line) -> Stream.of(line.split(" ")).map(word -> KeyValue.pair(word, "")).toList())
                .groupByKey()
                .count()
                .toStream()
                .mapValues(String::valueOf)
                .to("counts");
        return builder.build();
    }

    private static Topology join() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> left = builder.stream("left");
        KStream<String, String> right = builder.stream("right");
        JoinWindows near = JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(10));
        left.join(right, (a, b) -> a + "+" + b, near).to("joined");
        return builder.build();
    }

    private static void restores(int mebibytes, int rounds) throws IOException {
        int rows = (int) ((long) mebibytes * (1 << 20) / (16 + VALUE_BYTES));
        double[] ours = new double[rounds];
        double[] theirs = new double[rounds];
        for (int round = 0; round < rounds; round++) {
            ours[round] = restore(rows, true);
            theirs[round] = restore(rows, false);
            System.err.printf("Kvilt %.1f s, RocksDB %.1f s%n", ours[round], theirs[round]);
        }
        System.out.println("| restore | Kvilt, s | RocksDB | ratio |");
        System.out.println("| --- | ---: | ---: | ---: |");
        line(mebibytes + " MiB", median(ours), median(theirs), median(theirs) / median(ours));
    }

    /** Seconds from the first batch of the changelog to the commit behind the last one. */
    private static double restore(int rows, boolean isOurs) throws IOException {
        Path place = Files.createTempDirectory("kvilt-bench");
        try {
            KeyValueStore<Bytes, byte[]> store = store("restored", isOurs);
            InternalMockProcessorContext<?, ?> context = context(place);
            context.addChangelogForStore("restored", "bench-restored-changelog");
            store.init(context, store);
            SplittableRandom random = new SplittableRandom(1);
            List<KeyValue<byte[], byte[]>> batch = new ArrayList<>();
            long begun = System.nanoTime();
            for (int i = 0; i < rows; i++) {
                batch.add(KeyValue.pair(key(random), value(random)));
                if (batch.size() == RESTORED_TOGETHER || i == rows - 1) {
                    context.restore("restored", batch);
                    batch.clear();
                }
            }
            store.commit(Map.of());
            double seconds = (System.nanoTime() - begun) / 1e9;
            check(store, rows);
            store.close();
            return seconds;
        } finally {
            remove(place);
        }
    }

    private static void check(KeyValueStore<Bytes, byte[]> store, int rows) {
        int found = 0;
        try (KeyValueIterator<Bytes, byte[]> all = store.all()) {
            for (; all.hasNext(); all.next()) {
                found++;
            }
        }
        if (found != rows) {
            throw new AssertionError(rows + " rows were restored, and " + found + " are there");
        }
    }

    private static void residents(int stores) throws Exception {
        System.out.println("| stores | Kvilt, MiB resident more than without | RocksDB | Kvilt's budget |");
        System.out.println("| --- | ---: | ---: | ---: |");
        long ours = told("resident-kvilt", stores);
        long theirs = told("resident-rocksdb", stores);
        System.out.printf("| %d | %d | %d | %d |%n", stores, ours >> 20, theirs >> 20, BUDGET_BYTES >> 20);
    }

    private static long told(String what, int stores) throws Exception {
        Path java = Path.of(System.getProperty("java.home"), "bin", "java");
        Process process = new ProcessBuilder(
                        java.toString(),
                        // Java's own memory is resident before anything is measured.
                        "-XX:+UseSerialGC",
                        "-Xms96m",
                        "-Xmx96m",
                        "-XX:+AlwaysPreTouch",
                        "-cp",
                        System.getProperty("java.class.path"),
                        StreamsBench.class.getName(),
                        what,
                        String.valueOf(stores))
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        String said = new String(process.getInputStream().readAllBytes()).strip();
        if (process.waitFor() != 0) {
            throw new AssertionError(what + " failed");
        }
        return Long.parseLong(said.substring(said.lastIndexOf('\n') + 1));
    }

    private static void resident(int count, boolean isOurs) throws IOException {
        Path place = Files.createTempDirectory("kvilt-bench");
        try {
            InternalMockProcessorContext<?, ?> context = context(place);
            System.gc();
            long before = residentBytes();
            List<KeyValueStore<Bytes, byte[]>> stores = new ArrayList<>();
            SplittableRandom random = new SplittableRandom(1);
            long most = 0;
            for (int i = 0; i < count; i++) {
                KeyValueStore<Bytes, byte[]> store = store("store" + i, isOurs);
                store.init(context, store);
                stores.add(store);
                for (int row = 0; row < ROWS_OF_A_STORE; row++) {
                    store.put(Bytes.wrap(key(random)), value(random));
                }
                most = Math.max(most, residentBytes());
            }
            for (KeyValueStore<Bytes, byte[]> store : stores) {
                check(store, ROWS_OF_A_STORE);
                most = Math.max(most, residentBytes());
            }
            stores.forEach(KeyValueStore::close);
            System.out.println(most - before);
        } finally {
            remove(place);
        }
    }

    private static long residentBytes() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) << 10;
            }
        }
        throw new IOException("/proc/self/status has no VmRSS");
    }

    private static KeyValueStore<Bytes, byte[]> store(String name, boolean isOurs) {
        return (isOurs ? KviltStores.keyValue(name) : Stores.persistentKeyValueStore(name)).get();
    }

    private static InternalMockProcessorContext<?, ?> context(Path place) {
        return new InternalMockProcessorContext<>(
                place.toFile(), Serdes.ByteArray(), Serdes.ByteArray(), new StreamsConfig(properties(place)));
    }

    private static Properties properties(Path place) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "bench");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:1");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, place.toString());
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(KviltConfig.MEMORY_BUDGET_BYTES_CONFIG, String.valueOf(BUDGET_BYTES));
        return properties;
    }

    /** 16 bytes that no other row has. */
    private static byte[] key(SplittableRandom random) {
        return ByteBuffer.allocate(16).putLong(random.nextLong()).putLong(random.nextLong()).array();
    }

    /** Bytes that do not compress well. */
    private static byte[] value(SplittableRandom random) {
        byte[] value = new byte[VALUE_BYTES];
        random.nextBytes(value);
        return value;
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }

    private static void line(String name, double ours, double theirs, double ratio) {
        System.out.printf(Locale.ROOT, "| %s | %.1f | %.1f | %.2f |%n", name, ours, theirs, ratio);
    }

    private static void remove(Path place) throws IOException {
        try (Stream<Path> files = Files.walk(place)) {
            for (Path file : files.sorted((a, b) -> b.compareTo(a)).toList()) {
                Files.delete(file);
            }
        }
    }
}
