package io.kvilt.kafka.cluster;

import static io.kvilt.kafka.cluster.Cluster.STORES;
import static io.kvilt.kafka.cluster.Cluster.seconds;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.kafka.cluster.Instance.Keeper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * A broker, and an instance that finds files of two of its stores damaged when it starts again: Kafka restores their
 * tasks from the begin of their changelogs and no others, and every event counts once.
 */
class DamageTest {
    private static final int EVENTS = 20_000;
    private static final int EVENT_BYTES = 400;

    @TempDir
    Path directory;

    @Test
    @Timeout(value = 20, unit = TimeUnit.MINUTES)
    void kafka_restores_stores_whose_files_are_damaged() throws Exception {
        try (Cluster cluster = new Cluster(directory, 1, EVENT_BYTES)) {
            Program before = cluster.instance("first", Keeper.KVILT);
            cluster.await("the instance", () -> before.isRunning() && before.stores().size() == STORES);
            cluster.produce(EVENTS);
            cluster.receive(EVENTS);
            before.stop();
            // All of one store, and of another a byte that an open need not read.
            List<Path> files = files(cluster, 1);
            for (Path file : files) {
                damage(file, 64, 97);
            }
            Path largest = files(cluster, 2).stream().max(Comparator.comparing(DamageTest::bytes)).orElseThrow();
            damage(largest, bytes(largest) / 2, Integer.MAX_VALUE);

            long started = System.nanoTime();
            Program first = cluster.instance("first", Keeper.KVILT);
            cluster.await("a restore of the first", () -> first.isRunning() && isAnew(first, 1));
            // A query finds the other, and the task hears of it by the next event.
            first.scan();
            cluster.produce(EVENTS);
            cluster.await("a restore of the second", () -> isAnew(first, 2));
            cluster.receive(2 * EVENTS);
            System.out.println("measured: all events " + seconds(started) + " s after the start; " + first.told("begin")
                    + first.told("damaged"));
            cluster.check();
            assertTrue(first.told("damaged").get(0).contains(largest.getFileName().toString()), "the file is named");
            cluster.await("the instance", first::isRunning);
            cluster.awaitRows(first);
            for (int partition : new int[] {0, 3}) {
                assertFalse(isAnew(first, partition), () -> "a store without damage began anew: " + first.lines);
            }
            first.stop();
        }
    }

    /** Whether the store of a partition was read from the begin of its changelog. */
    private static boolean isAnew(Program instance, int partition) {
        return !instance.told("begin timeline " + partition + " 0").isEmpty();
    }

    private static List<Path> files(Cluster cluster, int partition) throws IOException {
        Path store = cluster.state("first").resolve("timelines/0_" + partition + "/kvilt/timeline");
        try (Stream<Path> all = Files.walk(store)) {
            return all.filter(Files::isRegularFile).toList();
        }
    }

    private static int bytes(Path file) {
        return Math.toIntExact(file.toFile().length());
    }

    private static void damage(Path file, int from, int step) throws IOException {
        byte[] bytes = Files.readAllBytes(file);
        for (long at = from; at < bytes.length; at += step) {
            bytes[(int) at] ^= 0x55;
        }
        Files.write(file, bytes);
    }
}
