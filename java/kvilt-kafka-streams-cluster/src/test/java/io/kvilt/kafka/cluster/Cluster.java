package io.kvilt.kafka.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Brokers and instances as processes of their own on loopback, events for them, and what must come of each event. One
 * thread uses it, but for {@link #produce}, which another may call as the only one. Ends what it started.
 */
final class Cluster implements AutoCloseable {
    static final int USERS = 200;
    static final int PARTITIONS = 4;

    /** Both stores of each partition. */
    static final int STORES = 2 * PARTITIONS;

    /** Limits each wait. Healthy ones take some 20 seconds where other programs use both processors. */
    private static final Duration PATIENCE = Duration.ofSeconds(150);

    /** Limits what a failure tells of each program's log. */
    private static final int LINES_TOLD = 25;

    /** Ports that are not given to whoever connects, as a broker's own attempts do before the others listen. */
    private static final int PORT_MIN = 20_000;

    private static final int PORT_MAX = 32_000;

    /** Between the events of a user; a window has several of them. */
    private static final long EVENT_MS = Duration.ofSeconds(7).toMillis();

    /** Of the first events: brokers take nothing far ahead of the clock, and delete what is older than a day or two. */
    private final long begin = System.currentTimeMillis() - Duration.ofHours(2).toMillis();

    private final Path directory;
    private final int valueBytes;
    private final List<Program> programs = new ArrayList<>();
    final List<Program> brokers = new ArrayList<>();
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;
    private String servers;

    /** What came for each user, in its order, and for each user and window. */
    private final Map<String, List<String>> results = new HashMap<>();

    private final Map<String, List<String>> counts = new HashMap<>();
    private volatile int produced;
    private int received;

    /**
     * Starts brokers, and makes topics.
     *
     * @param valueBytes how long the value of an event is, about
     */
    Cluster(Path directory, int size, int valueBytes) throws Exception {
        this.directory = directory;
        this.valueBytes = valueBytes;
        try {
            startBrokers(size);
            createTopics(size);
            producer = new KafkaProducer<>(
                    Map.of(
                            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                            ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true),
                    new StringSerializer(),
                    new StringSerializer());
            consumer = new KafkaConsumer<>(
                    Map.of(
                            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                            ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed"),
                    new StringDeserializer(),
                    new StringDeserializer());
            // Not as a group, which a slow machine may put out, and then it would see records again.
            consumer.assign(Stream.of("results", "counts").flatMap(Cluster::partitions).toList());
        } catch (Exception | Error e) {
            end();
            throw e;
        }
    }

    private static Stream<TopicPartition> partitions(String topic) {
        return IntStream.range(0, PARTITIONS).mapToObj(partition -> new TopicPartition(topic, partition));
    }

    private void startBrokers(int size) throws Exception {
        int[] ports = ports(2 * size);
        servers = IntStream.range(0, size).mapToObj(i -> "localhost:" + ports[i]).collect(Collectors.joining(","));
        String voters = IntStream.range(0, size)
                .mapToObj(i -> i + 1 + "@localhost:" + ports[size + i])
                .collect(Collectors.joining(","));
        String cluster = Uuid.randomUuid().toString();
        int replicasMin = Math.min(2, size);
        for (int id = 1; id <= size; id++) {
            Path settings = directory.resolve("broker" + id + ".properties");
            Files.writeString(settings, String.join("\n",
                    "process.roles=broker,controller",
                    "node.id=" + id,
                    "controller.quorum.voters=" + voters,
                    "listeners=PLAINTEXT://localhost:" + ports[id - 1]
                            + ",CONTROLLER://localhost:" + ports[size + id - 1],
                    "controller.listener.names=CONTROLLER",
                    "log.dirs=" + directory.resolve("broker" + id),
                    "offsets.topic.replication.factor=" + size,
                    "offsets.topic.num.partitions=4",
                    "transaction.state.log.replication.factor=" + size,
                    "transaction.state.log.num.partitions=4",
                    "transaction.state.log.min.isr=" + replicasMin,
                    "min.insync.replicas=" + replicasMin,
                    "broker.session.timeout.ms=6000",
                    "group.initial.rebalance.delay.ms=0"));
            String[] words = {"kafka.tools.StorageTool", "format", "-t", cluster, "-c", settings.toString()};
            Program format = start("format" + id, List.of(), words);
            assertTrue(format.process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS), "format");
            assertEquals(0, format.process.exitValue(), () -> format.lines.toString());
            brokers.add(start("broker" + id, List.of(), "kafka.Kafka", settings.toString()));
        }
    }

    private void createTopics(int size) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            await("brokers", () -> nodes(admin) == size);
            List<NewTopic> topics = List.of(
                    new NewTopic("events", PARTITIONS, (short) size),
                    new NewTopic("results", PARTITIONS, (short) size),
                    new NewTopic("counts", PARTITIONS, (short) size));
            admin.createTopics(topics).all().get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        }
    }

    /** Starts an instance of the application, whose state is in a directory of this name. */
    Program instance(String name, Instance.Keeper keeper) throws IOException {
        return instance(name, keeper, List.of());
    }

    /** As {@link #instance}, by a command that starts another one. */
    Program instance(String name, Instance.Keeper keeper, List<String> within) throws IOException {
        return start(
                name,
                within,
                Instance.class.getName(),
                servers,
                state(name).toString(),
                String.valueOf(brokers.size()),
                keeper.name());
    }

    Path state(String instance) {
        return directory.resolve(instance);
    }

    private Program start(String name, List<String> within, String... mainAndArguments) throws IOException {
        Path log = directory.resolve(name + "-" + programs.size() + ".log");
        Program program = new Program(log, within, List.of(mainAndArguments));
        programs.add(program);
        return program;
    }

    /** The n-th event of a user has the value n, and behind it bytes that nothing makes shorter. */
    private String value(int n) {
        byte[] filler = new byte[valueBytes / 2];
        new Random(n).nextBytes(filler);
        return n + "-" + HexFormat.of().formatHex(filler);
    }

    /** Sends events of all users in turn, and waits until brokers have them. */
    void produce(int events) throws ExecutionException, InterruptedException {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        int end = produced + events;
        for (int i = produced; i < end; i++) {
            long time = begin + i / USERS * EVENT_MS;
            sent.add(producer.send(
                    new ProducerRecord<>("events", null, time, "user" + i % USERS, value(i / USERS))));
        }
        producer.flush();
        for (Future<RecordMetadata> event : sent) {
            event.get();
        }
        produced = end;
    }

    /** Where the committed part of a store's changelog ends. */
    long committed(String store, int partition) {
        TopicPartition changelog = new TopicPartition("timelines-" + store + "-changelog", partition);
        return consumer.endOffsets(List.of(changelog)).get(changelog);
    }

    int produced() {
        return produced;
    }

    /** Waits for the results of as many events as there should be by now. */
    void receive(int events) throws TimeoutException {
        await(events + " results", () -> {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                Map<String, List<String>> values = record.topic().equals("results") ? results : counts;
                values.computeIfAbsent(record.key(), key -> new ArrayList<>()).add(record.value());
                received++;
            }
            return received >= 2 * events;
        });
    }

    /** Waits until instances have the rows of all events: Kafka may still move tasks from one to the other. */
    void awaitRows(Program... instances) throws IOException, TimeoutException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        List<Long> rows;
        do {
            rows = new ArrayList<>();
            for (Program instance : instances) {
                rows.add(instance.scan());
            }
        } while (rows.stream().mapToLong(Long::longValue).sum() != produced && System.nanoTime() < end);
        assertEquals(produced, rows.stream().mapToLong(Long::longValue).sum(), () -> "rows of " + produced + " events");
    }

    /**
     * Every user's events have come once, numbered without a hole, in the order in which they were produced, and those
     * of each window were counted one by one.
     */
    void check() {
        assertEquals(0, produced % USERS);
        assertEquals(2 * produced, received);
        assertEquals(USERS, results.size());
        Map<String, Integer> expected = new HashMap<>();
        results.forEach((user, events) -> {
            assertEquals(produced / USERS, events.size(), user);
            for (int i = 0; i < events.size(); i++) {
                assertEquals(i + ":" + value(i), events.get(i), user);
                long window = (begin + i * EVENT_MS) / Instance.WINDOW.toMillis();
                expected.merge(user + "@" + window, 1, Integer::sum);
            }
        });
        assertEquals(expected.keySet(), counts.keySet());
        counts.forEach((window, numbers) -> assertEquals(
                IntStream.rangeClosed(1, expected.get(window)).mapToObj(String::valueOf).toList(), numbers, window));
    }

    @Override
    public void close() throws InterruptedException {
        producer.close(Duration.ZERO);
        consumer.close();
        end();
    }

    private void end() throws InterruptedException {
        for (Program program : programs) {
            program.kill();
        }
    }

    private static int nodes(Admin admin) {
        try {
            return admin.describeCluster().nodes().get(5, TimeUnit.SECONDS).size();
        } catch (Exception e) {
            return 0;
        }
    }

    private static int[] ports(int count) {
        return new Random()
                .ints(PORT_MIN, PORT_MAX)
                .distinct()
                .filter(Cluster::isFree)
                .limit(count)
                .toArray();
    }

    private static boolean isFree(int port) {
        try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
            return socket.isBound();
        } catch (IOException e) {
            return false;
        }
    }

    static String seconds(long begin) {
        return String.format("%.1f", (System.nanoTime() - begin) / 1e9);
    }

    /** Waits, and fails with what every program told last. */
    void await(String what, BooleanSupplier isDone) throws TimeoutException {
        if (!isDoneInTime(isDone)) {
            throw new TimeoutException("no " + what + " in " + PATIENCE.toSeconds() + " s; " + received
                    + " records came for " + produced + " events\n"
                    + programs.stream().map(program -> program.lastLines(LINES_TOLD)).collect(Collectors.joining("\n")));
        }
    }

    static boolean isDoneInTime(BooleanSupplier isDone) {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!isDone.getAsBoolean()) {
            if (System.nanoTime() > end) {
                return false;
            }
            try {
                Thread.sleep(50);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
        return true;
    }
}
