package io.kvilt.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A process that ends as one does that is killed: nothing is closed. */
final class Killed {
    private static final int CODE = 9;

    private Killed() {}

    /** Runs a class whose main method ends by {@link #now}. */
    static void run(Class<?> main, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                main.getName()));
        command.addAll(List.of(arguments));
        File output = Files.createTempFile("kvilt", ".output").toFile();
        try {
            Process process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output).start();
            assertEquals(CODE, process.waitFor(), () -> told(output.toPath()));
        } finally {
            Files.delete(output.toPath());
        }
    }

    static void now() {
        Runtime.getRuntime().halt(CODE);
    }

    private static String told(Path output) {
        try {
            return Files.readString(output);
        } catch (IOException e) {
            return e.toString();
        }
    }
}
