package io.kvilt.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.internals.OffsetCheckpoint;
import org.apache.kafka.streams.test.TestRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A topology of the DSL on our stores has the output that it has on RocksDB's. */
class TopologyTest {
    private static final List<String> IN_ORDER =
            List.of("counts", "windows", "sliding", "sessions", "joined", "outer", "table", "totals", "foreign");

    /** Results at the close of windows: they come by time, also where several close at once. */
    private static final List<String> AT_CLOSE = List.of("closed-sessions", "closed-windows");

    @TempDir
    Path directory;

    private static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> left = builder.stream("left");
        KStream<String, String> right = builder.stream("right");
        KGroupedStream<String, String> grouped = left.groupByKey();
        Duration size = Duration.ofSeconds(10);
        Duration grace = Duration.ofSeconds(20);
        KTable<String, Long> counts = grouped.count();
        told(counts.toStream()).to("counts");
        told(grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace)).count().toStream()).to("windows");
        told(grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace)).count().toStream()).to("sliding");
        told(grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(size, grace)).count().toStream()).to("sessions");
        told(grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace))
                        .emitStrategy(EmitStrategy.onWindowClose())
                        .count()
                        .toStream())
                .to("closed-windows");
        told(grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(size, grace))
                        .emitStrategy(EmitStrategy.onWindowClose())
                        .count()
                        .toStream())
                .to("closed-sessions");
        JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(size, grace);
        told(left.join(right, (a, b) -> a + "+" + b, near)).to("joined");
        told(left.outerJoin(right, (a, b) -> a + "+" + b, near)).to("outer");
        KTable<String, String> table = right.toTable();
        told(left.leftJoin(table, (a, b) -> a + "/" + b)).to("table");
        told(table.groupBy((key, value) -> KeyValue.pair("key" + (value.charAt(0) - 'a'), value))
                        .count()
                        .join(counts, (a, b) -> a + "*" + b)
                        .toStream())
                .to("totals");
        told(table.join(counts, value -> "key" + (value.charAt(0) - 'a'), (a, b) -> a + "&" + b)
                        .toStream())
                .to("foreign");
        return builder.build();
    }

    private static KStream<String, String> told(KStream<?, ?> stream) {
        return stream.map((key, value) -> KeyValue.pair(String.valueOf(key), String.valueOf(value)));
    }

    private Properties properties(String guarantee, long cache, String suppliers) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "test");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:1");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory.resolve(suppliers).toString());
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, cache);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        // Only so does Kafka measure each call of a store.
        properties.put(StreamsConfig.METRICS_RECORDING_LEVEL_CONFIG, "DEBUG");
        properties.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        properties.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
        properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, suppliers);
        properties.put("enable.transactional.statestores", true);
        properties.put(KviltConfig.HAS_TRANSACTIONS_CONFIG, true);
        properties.put(KviltConfig.MEMORY_BUDGET_BYTES_CONFIG, 64 << 20);
        return properties;
    }

    @Test
    void a_topology_has_the_same_output_as_on_rocksdb() throws IOException {
        String rocksdb = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$RocksDBDslStoreSuppliers";
        String ours = KviltDslStoreSuppliers.class.getName();
        List<List<String>> expected = run(properties(StreamsConfig.AT_LEAST_ONCE, 0, rocksdb));
        expected.forEach(records -> assertFalse(records.isEmpty()));
        same(expected, run(properties(StreamsConfig.AT_LEAST_ONCE, 0, ours)));
        same(expected, run(properties(StreamsConfig.EXACTLY_ONCE_V2, 0, ours)));
        // With Kafka's cache over it.
        List<List<String>> cached = run(properties(StreamsConfig.AT_LEAST_ONCE, 1 << 20, rocksdb));
        List<List<String>> ourCached = run(properties(StreamsConfig.EXACTLY_ONCE_V2, 1 << 20, ours));
        // Over a store that is not Kafka's own the cache merges windows by key.
        int windows = cached.size() - 1;
        assertEquals(sorted(cached.get(windows)), sorted(ourCached.get(windows)));
        same(cached.subList(0, windows), ourCached.subList(0, windows));
    }

    @Test
    void a_new_store_of_a_global_table_does_not_begin_at_the_offset_of_another() throws IOException {
        Properties properties = properties(StreamsConfig.AT_LEAST_ONCE, 0, KviltDslStoreSuppliers.class.getName());
        Path global = Path.of(properties.getProperty(StreamsConfig.STATE_DIR_CONFIG), "test", "global");
        Files.createDirectories(global);
        OffsetCheckpoint checkpoint = new OffsetCheckpoint(global.resolve(".checkpoint").toFile());
        TopicPartition table = new TopicPartition("table", 0);
        checkpoint.write(Map.of(table, 5L));
        StreamsBuilder builder = new StreamsBuilder();
        builder.globalTable("table", Materialized.as(KviltStores.timestampedKeyValue("table")));
        Topology topology = builder.build();

        // Such a Kafka has read the file before it opens the store, and would restore what comes behind it.
        if (kafkaVersion().startsWith("3.")) {
            Throwable failure = assertThrows(
                    ProcessorStateException.class, () -> new TopologyTestDriver(topology, properties).close());
            assertTrue(failure.getMessage().contains("start the application again"), failure::getMessage);
            assertEquals(Map.of(), checkpoint.read());
        }
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, properties)) {
            // The older line has written the end of the topic there meanwhile, and that is its begin.
            assertEquals(0, checkpoint.read().getOrDefault(table, 0L));
            driver.createInputTopic("table", new StringSerializer(), new StringSerializer()).pipeInput("a", "1");
            assertEquals("1", driver.getTimestampedKeyValueStore("table").get("a").value());
        }
    }

    private static String kafkaVersion() throws IOException {
        Properties properties = new Properties();
        try (InputStream file = StreamsConfig.class.getResourceAsStream("/kafka/kafka-streams-version.properties")) {
            properties.load(file);
        }
        return properties.getProperty("version");
    }

    private static List<String> sorted(List<String> records) {
        return records.stream().sorted().toList();
    }

    private static void same(List<List<String>> expected, List<List<String>> found) {
        for (int i = 0; i < expected.size(); i++) {
            assertEquals(String.join("\n", expected.get(i)), String.join("\n", found.get(i)), "output " + i);
        }
    }

    private List<List<String>> run(Properties properties) throws IOException {
        List<List<String>> outputs = new ArrayList<>();
        boolean isOurs = properties.get(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG).toString().contains("Kvilt");
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(), properties)) {
            var left = driver.createInputTopic("left", new StringSerializer(), new StringSerializer());
            var right = driver.createInputTopic("right", new StringSerializer(), new StringSerializer());
            Random random = new Random(7);
            long now = 1_000_000;
            for (int i = 0; i < 120; i++) {
                now += random.nextInt(10_000);
                long late = random.nextInt(10) == 0 ? random.nextInt(40_000) : 0;
                String key = "key" + random.nextInt(12);
                String value = random.nextInt(30) == 0 ? null : (char) ('a' + random.nextInt(3)) + String.valueOf(i);
                boolean isLeft = random.nextBoolean();
                (isLeft ? left : right)
                        .pipeInput(new TestRecord<>(key, isLeft && value == null ? "none" : value, null, now - late));
            }
            // Windows and sessions of several keys, all in one segment, are over by the last record.
            now = (now / 60_000 + 2) * 60_000;
            for (String key : List.of("key1", "key0", "key2")) {
                for (long time : List.of(0, 1_000, 12_000, 13_000)) {
                    left.pipeInput(new TestRecord<>(key, "a", null, now + time));
                }
            }
            left.pipeInput(new TestRecord<>("key3", "a", null, now + 55_000));
            if (isOurs) {
                assertOnlyOurs(properties);
                assertMeasured(driver);
                assertAnswers(driver);
            }
            for (String topic : Stream.concat(IN_ORDER.stream(), AT_CLOSE.stream()).toList()) {
                List<String> records = new ArrayList<>();
                var output = driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer());
                while (!output.isEmpty()) {
                    TestRecord<String, String> record = output.readRecord();
                    records.add(record.timestamp() + " " + record.key() + " " + record.value());
                }
                outputs.add(records);
            }
        }
        return outputs;
    }

    /** One line put the whole topology on Kvilt. */
    private static void assertOnlyOurs(Properties properties) throws IOException {
        try (Stream<Path> files = Files.walk(Path.of(properties.getProperty(StreamsConfig.STATE_DIR_CONFIG)), 4)) {
            Set<String> kinds = files.filter(path -> path.getNameCount() > 2 && Files.isDirectory(path))
                    .map(path -> path.getFileName().toString())
                    .filter(name -> name.equals("kvilt") || name.equals("rocksdb"))
                    .collect(Collectors.toSet());
            assertEquals(Set.of("kvilt"), kinds);
        }
    }

    private static void assertMeasured(TopologyTestDriver driver) {
        List<String> ours = driver.metrics().entrySet().stream()
                .filter(metric -> metric.getKey().tags().keySet().stream().anyMatch(tag -> tag.matches("kvilt.*-state-id")))
                .filter(metric -> metric.getValue().metricValue() instanceof Double value && value > 0)
                .map(metric -> metric.getKey().name())
                .distinct()
                .toList();
        assertTrue(ours.contains("memory-bytes-now"), ours::toString);
        // Tags are Kafka's, so a store's figures of both can be shown beside each other.
        List<Set<Map<String, String>>> tags = Stream.of("memory-bytes-now", "put-rate")
                .map(name -> driver.metrics().keySet().stream()
                        .filter(metric -> metric.name().equals(name))
                        .map(MetricName::tags)
                        .filter(names -> names.keySet().stream().anyMatch(tag -> tag.endsWith("-state-id")))
                        .collect(Collectors.toSet()))
                .toList();
        assertEquals(tags.get(1), tags.get(0));
        // Kafka's own, by the scope that our suppliers name.
        assertTrue(ours.contains("put-latency-avg"), ours::toString);
        assertTrue(driver.metrics().keySet().stream().anyMatch(name -> name.name().equals("commit-latency-avg")
                && name.tags().containsKey("kvilt-id")));
    }

    /** The stores answer through Kafka's own wrappers. */
    private static void assertAnswers(TopologyTestDriver driver) {
        long rows = 0;
        for (var store : driver.getAllStateStores().entrySet()) {
            if (store.getValue() instanceof KeyValueStore<?, ?> keyValue) {
                try (KeyValueIterator<?, ?> all = keyValue.all()) {
                    while (all.hasNext()) {
                        all.next();
                        rows++;
                    }
                }
            }
        }
        assertTrue(rows >= 24, rows + " rows");
    }
}
