package io.kvilt.flink.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.flink.KviltOperator;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint;
import org.apache.flink.runtime.taskexecutor.TaskManagerRunner;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * A JobManager and two TaskManagers, as processes of their own on loopback. A TaskManager is killed while events come
 * in: Flink restores the job from its last checkpoint on half as many subtasks, and takes a third TaskManager when there
 * is one. Each event is counted once. Stops by itself, and ends what it started.
 */
class ClusterTest {
    private static final int EVENTS = 200_000;
    private static final int EVENTS_A_SECOND = 5_000;
    private static final int USERS = 200;
    private static final int SLOTS = 2;

    /** Ports that the system gives to nobody who connects. */
    private static final int PORT_MIN = 20_000;

    private static final int PORT_MAX = 32_000;

    private static final Duration PATIENCE = Duration.ofSeconds(90);
    private static final Pattern RESTORED = Pattern.compile("\\((\\d+)/(\\d+)\\)#(\\d+) restored (\\d+) rows in");

    @TempDir
    Path directory;

    private final List<Process> processes = new ArrayList<>();
    private final HttpClient http =
            HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();
    private int port;
    private String job;

    @AfterEach
    @Timeout(value = 5, unit = TimeUnit.MINUTES)
    void end() throws InterruptedException {
        for (Process process : processes) {
            kill(process);
        }
    }

    /** kill -9. A process that waits for the disk ends later. */
    private static void kill(Process process) throws InterruptedException {
        process.destroyForcibly();
        process.waitFor();
    }

    @Test
    @Timeout(value = 5, unit = TimeUnit.MINUTES)
    void nothing_is_lost_and_nothing_counts_twice() throws Exception {
        writeSettings();
        start("jobmanager", "-Xmx256m", StandaloneSessionClusterEntrypoint.class);
        Process first = taskManager("first");
        taskManager("second");
        await("two TaskManagers", () -> slots() == 2 * SLOTS);

        long begin = System.nanoTime();
        submit();
        await("a job on four subtasks", () -> isRunning(2 * SLOTS));
        await("checkpoints", () -> completed() >= 4);

        long killed = System.nanoTime();
        kill(first);
        processes.remove(first);
        await("a job on two subtasks", () -> isRunning(SLOTS) && restores() > 0);
        long rescaled = System.nanoTime();
        long rows = restoredRows(SLOTS);
        System.out.println("measured: on half the subtasks " + seconds(killed, rescaled) + " s after the kill, with "
                + rows + " rows restored");
        assertTrue(rows > 10_000, "too few rows were restored: " + rows);
        int before = completed();
        await("checkpoints of two subtasks", () -> completed() >= before + 2);

        long added = System.nanoTime();
        taskManager("third");
        await("a job on four subtasks again", () -> isRunning(2 * SLOTS));
        long more = restoredRows(2 * SLOTS);
        System.out.println("measured: on all subtasks again " + seconds(added, System.nanoTime())
                + " s after the start of a third TaskManager, with " + more + " rows restored");
        assertTrue(more > rows, "fewer rows were restored than before: " + more);

        await("the end of the job", () -> state().equals("FINISHED"));
        System.out.println("measured: memory of JobManager and TaskManagers at its peak, in MB: " + peaks());
        System.out.println("measured: all " + EVENTS + " events in " + seconds(begin, System.nanoTime()) + " s");
        check();
    }

    /** Every user's events are there, each once. */
    private void check() throws IOException {
        long all = 0;
        for (int user = 0; user < USERS; user++) {
            String[] counted = Files.readString(results().resolve("user" + user)).split(" ");
            assertEquals(EVENTS / USERS, Long.parseLong(counted[0]), "events of user" + user);
            assertEquals(0, Long.parseLong(counted[1]), "events of user" + user + " that came twice");
            assertEquals(EVENTS - USERS + user, Long.parseLong(counted[2]), "the last event of user" + user);
            all += Long.parseLong(counted[0]);
        }
        assertEquals(EVENTS, all);
        for (String living : List.of("second", "third")) {
            try (Stream<Path> files = Files.walk(directory.resolve(living))) {
                assertEquals(
                        List.of(),
                        files.filter(file -> file.getFileName().toString().startsWith("kvilt-")).toList(),
                        "directories of stores that are left");
            }
        }
    }

    private Path results() {
        return directory.resolve("results");
    }

    /** The classes of the job are in the class path of every process, so no jar is sent. */
    private void submit() throws Exception {
        Files.createDirectories(results());
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "1500 ms");
        settings.setString(
                "execution.checkpointing.dir", directory.resolve("checkpoints").toUri().toString());
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "20");
        settings.setString("restart-strategy.fixed-delay.delay", "200 ms");
        StreamExecutionEnvironment stream = StreamExecutionEnvironment.createRemoteEnvironment("localhost", port, settings);
        stream.setParallelism(2 * SLOTS);
        stream.setMaxParallelism(32);
        stream.fromSource(
                        new DataGeneratorSource<>(
                                event -> event, EVENTS, RateLimiterStrategy.perSecond(EVENTS_A_SECOND), Types.LONG),
                        WatermarkStrategy.noWatermarks(),
                        "events")
                .keyBy(event -> "user" + event % USERS)
                .transform("timeline", Types.STRING, new KviltOperator<>(new Timeline(results())))
                .uid("timeline")
                .sinkTo(new DiscardingSink<>());
        job = stream.executeAsync("timelines").getJobID().toString();
    }

    private void writeSettings() throws IOException {
        int[] ports = ports(2);
        port = ports[1];
        Files.writeString(
                Files.createDirectories(directory.resolve("conf")).resolve("config.yaml"),
                String.join(
                        "\n",
                        "jobmanager.rpc.address: localhost",
                        "jobmanager.rpc.port: " + ports[0],
                        "jobmanager.bind-host: localhost",
                        "rest.address: localhost",
                        "rest.bind-address: localhost",
                        "rest.port: " + port,
                        "web.refresh-interval: 200",
                        "taskmanager.host: localhost",
                        "taskmanager.bind-host: localhost",
                        "taskmanager.numberOfTaskSlots: " + SLOTS,
                        "taskmanager.cpu.cores: 1",
                        "taskmanager.memory.framework.heap.size: 64m",
                        "taskmanager.memory.framework.off-heap.size: 32m",
                        "taskmanager.memory.task.heap.size: 96m",
                        "taskmanager.memory.task.off-heap.size: 48m",
                        "taskmanager.memory.managed.size: 0m",
                        "taskmanager.memory.network.min: 32m",
                        "taskmanager.memory.network.max: 32m",
                        "taskmanager.memory.jvm-metaspace.size: 96m",
                        "taskmanager.memory.jvm-overhead.min: 32m",
                        "taskmanager.memory.jvm-overhead.max: 32m",
                        "heartbeat.interval: 1000",
                        "heartbeat.timeout: 5000",
                        "jobmanager.scheduler: adaptive",
                        "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout: 1 s",
                        "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout: 1 s",
                        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling: 1 s",
                        ""));
    }

    private Process taskManager(String name) throws IOException {
        Path own = Files.createDirectories(directory.resolve(name));
        return start(
                name,
                "-Xmx160m",
                TaskManagerRunner.class,
                "-D", "taskmanager.resource-id=" + name,
                "-D", "io.tmp.dirs=" + own,
                "-D", "process.taskmanager.working-dir=" + own);
    }

    private Process start(String name, String heap, Class<?> main, String... more) throws IOException {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                heap,
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Djava.io.tmpdir=" + directory,
                "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                main.getName(),
                "--configDir",
                directory.resolve("conf").toString()));
        command.addAll(List.of(more));
        Process process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(log(name).toFile())
                .start();
        processes.add(process);
        return process;
    }

    /** Of the living, where the system tells; empty elsewhere. */
    private List<Long> peaks() throws IOException {
        List<Long> peaks = new ArrayList<>();
        for (Process process : processes) {
            Path status = Path.of("/proc", String.valueOf(process.pid()), "status");
            if (Files.exists(status)) {
                Matcher matcher = Pattern.compile("VmHWM:\\s*(\\d+) kB").matcher(Files.readString(status));
                if (matcher.find()) {
                    peaks.add(Long.parseLong(matcher.group(1)) / 1000);
                }
            }
        }
        return peaks;
    }

    private Path log(String name) {
        return directory.resolve(name + ".log");
    }

    private int slots() {
        return number("overview", "\"slots-total\":(\\d+)");
    }

    /** Whether both vertices of the job, source and operator, run with so many subtasks. */
    private boolean isRunning(int subtasks) {
        String vertex = "\"parallelism\":" + subtasks + ",\"status\":\"RUNNING\"";
        return state().equals("RUNNING") && said("jobs/" + job).split(vertex, -1).length == 3;
    }

    /** The job's is the first one that is told. */
    private String state() {
        Matcher matcher = Pattern.compile("\"state\":\"(\\w+)\"").matcher(said("jobs/" + job));
        return matcher.find() ? matcher.group(1) : "unknown";
    }

    private int completed() {
        return number("jobs/" + job + "/checkpoints", "\"completed\":(\\d+)");
    }

    private int restores() {
        return number("jobs/" + job + "/checkpoints", "\"restored\":(\\d+)");
    }

    /** By so many subtasks, each in its last attempt, as they tell in their logs. */
    private long restoredRows(int subtasks) throws IOException {
        Map<String, TreeMap<Integer, Long>> attempts = new HashMap<>();
        for (String name : List.of("first", "second", "third")) {
            Matcher matcher = RESTORED.matcher(Files.exists(log(name)) ? Files.readString(log(name)) : "");
            while (matcher.find()) {
                if (Integer.parseInt(matcher.group(2)) == subtasks) {
                    attempts.computeIfAbsent(matcher.group(1), index -> new TreeMap<>())
                            .put(Integer.valueOf(matcher.group(3)), Long.valueOf(matcher.group(4)));
                }
            }
        }
        return attempts.values().stream()
                .mapToLong(attempt -> attempt.lastEntry().getValue())
                .sum();
    }

    private int number(String path, String pattern) {
        Matcher matcher = Pattern.compile(pattern).matcher(said(path));
        return matcher.find() ? Integer.parseInt(matcher.group(1)) : 0;
    }

    /** What the JobManager says, or nothing while it says nothing. */
    private String said(String path) {
        try {
            HttpRequest request = HttpRequest.newBuilder(URI.create("http://localhost:" + port + "/" + path))
                    .timeout(Duration.ofSeconds(5))
                    .build();
            return http.send(request, HttpResponse.BodyHandlers.ofString()).body();
        } catch (IOException e) {
            return "";
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Of each log, for who looks why nothing came. */
    private String lastLines() throws IOException {
        StringBuilder text = new StringBuilder();
        for (String name : List.of("jobmanager", "first", "second", "third")) {
            if (Files.exists(log(name))) {
                List<String> lines = Files.readAllLines(log(name));
                text.append("--- ").append(name).append('\n');
                lines.subList(Math.max(0, lines.size() - 30), lines.size())
                        .forEach(line -> text.append(line).append('\n'));
            }
        }
        return text.toString();
    }

    private static int[] ports(int count) {
        return new Random()
                .ints(PORT_MIN, PORT_MAX)
                .distinct()
                .filter(ClusterTest::isFree)
                .limit(count)
                .toArray();
    }

    private static boolean isFree(int port) {
        try (ServerSocket socket = new ServerSocket(port)) {
            return socket.isBound();
        } catch (IOException e) {
            return false;
        }
    }

    private static String seconds(long begin, long end) {
        return String.format("%.1f", (end - begin) / 1e9);
    }

    private void await(String what, BooleanSupplier isDone) throws TimeoutException, IOException {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!isDone.getAsBoolean()) {
            if (System.nanoTime() > end || processes.stream().anyMatch(process -> !process.isAlive())) {
                throw new TimeoutException("no " + what + " in " + PATIENCE.toSeconds() + " s, or a process ended by itself\n" + lastLines());
            }
            try {
                Thread.sleep(100);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }
}
