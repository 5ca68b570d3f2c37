package io.kvilt.kafka.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Three brokers and two instances with a standby each, as processes of their own on loopback. An instance, then a
 * broker, is killed while events come in: each event is there once, in order, and the instance that comes back
 * replays its tail. Stops by itself, and ends what it started.
 */
class ClusterTest {
    private static final int USERS = 200;
    private static final int PARTITIONS = 4;
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    @TempDir
    Path directory;

    private final List<Program> programs = new ArrayList<>();
    private String servers;
    private int produced;
    private KafkaProducer<String, String> producer;
    private KafkaConsumer<String, String> consumer;

    /** What came for each user, in its order. */
    private final Map<String, List<String>> results = new HashMap<>();

    private int received;

    /** A process, and the lines that it wrote. */
    private static final class Program {
        final Process process;
        final List<String> lines = new CopyOnWriteArrayList<>();

        Program(List<String> command, Path log) throws IOException {
            process = new ProcessBuilder(command).redirectError(log.toFile()).start();
            Thread reader = new Thread(() -> {
                try (BufferedReader output = process.inputReader()) {
                    output.lines().forEach(lines::add);
                } catch (UncheckedIOException | IOException e) {
                    lines.add("its output ended");
                }
            });
            reader.setDaemon(true);
            reader.start();
        }

        /** kill -9. */
        void kill() throws InterruptedException {
            process.destroyForcibly();
            process.waitFor(10, TimeUnit.SECONDS);
        }

        boolean isRunning() {
            return lines.stream().filter(line -> line.startsWith("state")).reduce((a, b) -> b).orElse("")
                    .equals("state RUNNING");
        }

        List<String> told(String word) {
            return lines.stream().filter(line -> line.startsWith(word + " ")).toList();
        }

        long scan() throws IOException, TimeoutException {
            int before = told("rows").size();
            OutputStream input = process.getOutputStream();
            input.write("scan\n".getBytes(StandardCharsets.UTF_8));
            input.flush();
            await("an answer to a scan", () -> told("rows").size() > before);
            return Long.parseLong(told("rows").get(before).split(" ")[1]);
        }
    }

    @AfterEach
    void end() throws InterruptedException {
        if (producer != null) {
            producer.close(Duration.ZERO);
        }
        if (consumer != null) {
            consumer.close();
        }
        for (Program program : programs) {
            program.kill();
        }
    }

    @Test
    @Timeout(value = 5, unit = TimeUnit.MINUTES)
    void nothing_is_lost_and_nothing_comes_twice() throws Exception {
        List<Program> brokers = brokers();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            await("three brokers", () -> nodes(admin) == 3);
            admin.createTopics(List.of(
                            new NewTopic("events", PARTITIONS, (short) 3), new NewTopic("results", PARTITIONS, (short) 3)))
                    .all()
                    .get(30, TimeUnit.SECONDS);
        }
        open();
        Program first = instance("first");
        Program second = instance("second");
        await("two instances", () -> first.isRunning() && second.isRunning());

        produce(20_000);
        receive(20_000);
        await("standbys", () -> partitions(first) == PARTITIONS && partitions(second) == PARTITIONS);
        long killed = produceAndKill(20_000, first);
        receive(40_000);
        System.out.println("measured: all 40,000 events " + seconds(killed) + " s after the kill of an instance");

        long restarted = System.nanoTime();
        Program again = instance("first");
        await("the instance that was killed", () -> again.isRunning() && partitions(again) == PARTITIONS);
        List<String> begins = again.told("begin");
        System.out.println("measured: it came back in " + seconds(restarted) + " s; partition, first offset: " + begins
                + again.told("restored"));
        for (String begin : begins) {
            // 20,000 events are 40,000 records of the changelog in four partitions; they were committed before.
            assertTrue(Long.parseLong(begin.split(" ")[2]) > 5_000, "it began anew: " + begins);
        }

        killed = produceAndKill(10_000, brokers.get(2));
        receive(50_000);
        System.out.println("measured: all 50,000 events " + seconds(killed) + " s after the kill of a broker");
        check();
        await("two instances", () -> again.isRunning() && second.isRunning());
        assertEquals(50_000, again.scan() + second.scan(), "rows of both instances");
    }

    /** Every user's events have come once, numbered without a hole, in the order in which they were produced. */
    private void check() {
        assertEquals(produced, received);
        assertEquals(USERS, results.size());
        results.forEach((user, events) -> {
            assertEquals(produced / USERS, events.size(), user);
            for (int i = 0; i < events.size(); i++) {
                assertEquals(i + ":" + i, events.get(i), user);
            }
        });
    }

    private void open() {
        producer = new KafkaProducer<>(
                Map.of(
                        ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                        ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true),
                new StringSerializer(),
                new StringSerializer());
        consumer = new KafkaConsumer<>(
                Map.of(
                        ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                        ConsumerConfig.GROUP_ID_CONFIG, "check",
                        ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                        ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed"),
                new StringDeserializer(),
                new StringDeserializer());
        consumer.subscribe(List.of("results"));
    }

    /** The n-th event of a user has the value n. */
    private void produce(int events) {
        for (int i = 0; i < events; i++, produced++) {
            producer.send(new ProducerRecord<>("events", "user" + produced % USERS, String.valueOf(produced / USERS)));
        }
        producer.flush();
    }

    /** Kills a program when half of the events are out, and results of some of them have come. */
    private long produceAndKill(int events, Program program) throws Exception {
        produce(events / 2);
        receive(produced - events / 2 + events / 8);
        long killed = System.nanoTime();
        program.kill();
        produce(events / 2);
        return killed;
    }

    private void receive(int events) throws TimeoutException {
        await(events + " results", () -> {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                results.computeIfAbsent(record.key(), user -> new ArrayList<>()).add(record.value());
                received++;
            }
            return received >= events;
        });
    }

    /** Of how many partitions it has the store, as the active one or the standby. */
    private static long partitions(Program instance) {
        return instance.told("begin").stream().map(line -> line.split(" ")[1]).distinct().count();
    }

    private List<Program> brokers() throws Exception {
        int[] ports = ports(6);
        servers = "localhost:" + ports[0] + ",localhost:" + ports[1] + ",localhost:" + ports[2];
        String voters = "1@localhost:" + ports[3] + ",2@localhost:" + ports[4] + ",3@localhost:" + ports[5];
        String cluster = Uuid.randomUuid().toString();
        List<Program> brokers = new ArrayList<>();
        for (int id = 1; id <= 3; id++) {
            Path settings = directory.resolve("broker" + id + ".properties");
            Files.writeString(settings, String.join("\n",
                    "process.roles=broker,controller",
                    "node.id=" + id,
                    "controller.quorum.voters=" + voters,
                    "listeners=PLAINTEXT://localhost:" + ports[id - 1] + ",CONTROLLER://localhost:" + ports[id + 2],
                    "controller.listener.names=CONTROLLER",
                    "log.dirs=" + directory.resolve("broker" + id),
                    "offsets.topic.replication.factor=3",
                    "offsets.topic.num.partitions=4",
                    "transaction.state.log.replication.factor=3",
                    "transaction.state.log.num.partitions=4",
                    "transaction.state.log.min.isr=2",
                    "min.insync.replicas=2",
                    "broker.session.timeout.ms=6000",
                    "group.initial.rebalance.delay.ms=0"));
            Program format = start(
                    "format" + id, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", settings.toString());
            assertTrue(format.process.waitFor(60, TimeUnit.SECONDS), "format");
            assertEquals(0, format.process.exitValue(), () -> format.lines.toString());
            brokers.add(start("broker" + id, "kafka.Kafka", settings.toString()));
        }
        return brokers;
    }

    private Program instance(String name) throws IOException {
        return start(name, Instance.class.getName(), servers, directory.resolve(name).toString());
    }

    private Program start(String name, String... mainAndArguments) throws IOException {
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes));
        command.addAll(List.of(mainAndArguments));
        Program program = new Program(command, directory.resolve(name + "-" + programs.size() + ".log"));
        programs.add(program);
        return program;
    }

    private static int nodes(Admin admin) {
        try {
            return admin.describeCluster().nodes().get(5, TimeUnit.SECONDS).size();
        } catch (Exception e) {
            return 0;
        }
    }

    private static int[] ports(int count) throws IOException {
        int[] ports = new int[count];
        ServerSocket[] sockets = new ServerSocket[count];
        for (int i = 0; i < count; i++) {
            sockets[i] = new ServerSocket(0);
            ports[i] = sockets[i].getLocalPort();
        }
        for (ServerSocket socket : sockets) {
            socket.close();
        }
        return ports;
    }

    private static String seconds(long begin) {
        return String.format("%.1f", (System.nanoTime() - begin) / 1e9);
    }

    private static void await(String what, BooleanSupplier isDone) throws TimeoutException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!isDone.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new TimeoutException("no " + what + " in " + PATIENCE.toSeconds() + " s");
            }
            try {
                Thread.sleep(50);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }
}
