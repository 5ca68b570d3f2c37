package io.kvilt.kafka.cluster;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;

/** A process of a cluster, and the lines that it wrote. Any thread may read them. */
final class Program {
    private static final int STOP_SECONDS = 30;

    final Process process;
    final List<String> lines = new CopyOnWriteArrayList<>();

    /**
     * Starts Java with a class and its arguments; what it complains of goes to a file.
     *
     * @param within words of a command that starts another one
     */
    Program(Path log, List<String> within, List<String> mainAndArguments) throws IOException {
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        List<String> command = new ArrayList<>(within);
        command.addAll(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes));
        command.addAll(mainAndArguments);
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

    /** Ends an instance's input, so it closes its stores and ends. */
    void stop() throws IOException, InterruptedException {
        process.getOutputStream().close();
        if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS) || process.exitValue() != 0) {
            throw new IOException("it did not stop in " + STOP_SECONDS + " s: " + lines);
        }
    }

    boolean isRunning() {
        return lines.stream().filter(line -> line.startsWith("state")).reduce((a, b) -> b).orElse("")
                .equals("state RUNNING");
    }

    List<String> told(String word) {
        return lines.stream().filter(line -> line.startsWith(word + " ")).toList();
    }

    /** The stores that it has, as the active one or the standby: name and partition. */
    Set<String> stores() {
        return told("begin").stream()
                .map(line -> line.split(" ")[1] + " " + line.split(" ")[2])
                .collect(Collectors.toSet());
    }

    /** How many events are in the partitions that are active there. */
    long scan() throws IOException, TimeoutException {
        int before = told("rows").size();
        OutputStream input = process.getOutputStream();
        input.write("scan\n".getBytes(StandardCharsets.UTF_8));
        input.flush();
        Cluster.await("an answer to a scan", () -> told("rows").size() > before);
        return Long.parseLong(told("rows").get(before).split(" ")[1]);
    }
}
