package io.kvilt.example;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import kafka.Kafka;
import kafka.tools.StorageTool;
import org.apache.kafka.common.Uuid;

/**
 * A broker of Kafka's, and its own controller, in a process of its own on loopback. It ends with the process that
 * started it, however that ends: its input does then.
 */
final class Broker implements AutoCloseable {
    private static final long STOP_SECONDS = 20;

    private static final int PORT_MIN = 20_000;
    private static final int PORT_MAX = 32_000;

    private final Process process;
    private final int port;

    /** Starts it; it answers a few seconds later. */
    Broker(Path directory) throws IOException {
        int[] ports = freePorts();
        port = ports[0];
        int controller = ports[1];
        Path settings = Files.writeString(
                directory.resolve("broker.properties"),
                String.join(
                        "\n",
                        "process.roles=broker,controller",
                        "node.id=1",
                        "controller.quorum.voters=1@localhost:" + controller,
                        "listeners=PLAINTEXT://localhost:" + port + ",CONTROLLER://localhost:" + controller,
                        "controller.listener.names=CONTROLLER",
                        "log.dirs=" + directory.resolve("broker"),
                        "offsets.topic.replication.factor=1",
                        "offsets.topic.num.partitions=1",
                        "transaction.state.log.replication.factor=1",
                        "transaction.state.log.num.partitions=1",
                        "transaction.state.log.min.isr=1",
                        "group.initial.rebalance.delay.ms=0",
                        "log.segment.bytes=16777216"));
        process = new ProcessBuilder(List.of(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-Xmx256m",
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
                        "-cp",
                        System.getProperty("java.class.path"),
                        Broker.class.getName(),
                        settings.toString()))
                .redirectErrorStream(true)
                .redirectOutput(directory.resolve("broker.log").toFile())
                .start();
    }

    /** The broker's process. */
    public static void main(String[] arguments) {
        String settings = arguments[0];
        String[] format = {"format", "-t", Uuid.randomUuid().toString(), "-c", settings};
        if (StorageTool.execute(format, System.out) != 0) {
            System.exit(1);
        }
        Thread parent = new Thread(() -> {
            try {
                System.in.read();
            } catch (IOException e) {
                System.err.println("The input fails: " + e);
            }
            System.exit(0);
        });
        parent.setDaemon(true);
        parent.start();
        Kafka.main(new String[] {settings});
    }

    String address() {
        return "localhost:" + port;
    }

    @Override
    public void close() throws IOException {
        process.getOutputStream().close();
        try {
            if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    /** Two free ports below those that the kernel gives to clients, so that no client takes one before the broker does. */
    private static int[] freePorts() {
        return new Random().ints(PORT_MIN, PORT_MAX).distinct().filter(Broker::isFree).limit(2).toArray();
    }

    private static boolean isFree(int port) {
        try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
            return socket.isBound();
        } catch (IOException e) {
            return false;
        }
    }
}
