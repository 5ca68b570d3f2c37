package io.kvilt.kafka.cluster;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
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

    private final Path log;
    final Process process;
    final List<String> lines = new CopyOnWriteArrayList<>();

    /**
     * Starts Java with a class and its arguments; what it complains of goes to a file.
     *
     * @param within words of a command that starts another one
     */
    Program(Path log, List<String> within, List<String> mainAndArguments) throws IOException {
        this.log = log;
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

    /** kill -9. A process that waits for the disk ends later, and has its files until then. */
    void kill() throws InterruptedException {
        process.destroyForcibly();
        process.waitFor();
    }

    /** Has an instance halt in the middle of a transaction, see {@link Instance}: it does at events that come later. */
    void halt() throws IOException, TimeoutException {
        ask("halt", "halting");
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
        return lines.stream().filter(line -> (line + " ").startsWith(word + " ")).toList();
    }

    /** What it told last, and complained of last. */
    String lastLines(int count) {
        StringBuilder text = new StringBuilder("--- " + log.getFileName());
        List<String> complaints;
        try {
            complaints = Files.readAllLines(log);
        } catch (IOException e) {
            complaints = List.of("(unreadable: " + e + ")");
        }
        for (List<String> all : List.of(List.copyOf(lines), complaints)) {
            all.subList(Math.max(0, all.size() - count), all.size())
                    .forEach(line -> text.append('\n').append(line));
        }
        return text.toString();
    }

    /** The stores that it has, as the active one or the standby: name and partition. */
    Set<String> stores() {
        return told("begin").stream()
                .map(line -> line.split(" ")[1] + " " + line.split(" ")[2])
                .collect(Collectors.toSet());
    }

    /** Up to which offset a store has followed another; no limit if it is the active one. */
    long followed(String store, int partition) {
        long followed = Long.MAX_VALUE;
        for (String line : lines) {
            String[] words = line.split(" ");
            if (line.startsWith("begin " + store + " " + partition + " ")) {
                followed = line.endsWith("standby") ? Long.parseLong(words[3]) : Long.MAX_VALUE;
            } else if (line.startsWith("followed " + store + " " + partition + " ")) {
                followed = Long.parseLong(words[3]);
            }
        }
        return followed;
    }

    /** How many events are in the partitions that are active there; negative if there is no answer, see {@link Instance}. */
    long scan() throws IOException, TimeoutException {
        return Long.parseLong(ask("scan", "rows").split(" ")[1]);
    }

    /** Writes a line to an instance; returns its next line that begins with a word. */
    private String ask(String question, String word) throws IOException, TimeoutException {
        int before = told(word).size();
        OutputStream input = process.getOutputStream();
        input.write((question + "\n").getBytes(StandardCharsets.UTF_8));
        input.flush();
        if (!Cluster.isDoneInTime(() -> told(word).size() > before)) {
            throw new TimeoutException("no answer to `" + question + "`: " + lastLines(100));
        }
        return told(word).get(before);
    }
}
