package io.kvilt.kafka.cluster;

import static io.kvilt.kafka.cluster.Cluster.STORES;
import static io.kvilt.kafka.cluster.Cluster.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.kvilt.kafka.cluster.Instance.Keeper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.utils.Utils;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * An application of two instances that runs on Kafka's RocksDB stores is moved to Kvilt as docs/guide/scale.md says,
 * one instance after the other, while events come in without a pause.
 */
class UpgradeTest {
    private static final int EVENTS_BEFORE = 10_000;

    /** Between events of all users. */
    private static final int PAUSE_MS = 100;

    @TempDir
    Path directory;

    @ParameterizedTest(name = "the state directory is removed: {0}")
    @ValueSource(booleans = {true, false})
    @Timeout(value = 20, unit = TimeUnit.MINUTES)
    void instances_are_moved_one_by_one_and_every_event_counts_once(boolean isRemoved) throws Exception {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        AtomicBoolean isDone = new AtomicBoolean();
        try (Cluster cluster = new Cluster(directory, 1, 0)) {
            Program first = cluster.instance("first", Keeper.ROCKSDB);
            Program second = cluster.instance("second", Keeper.ROCKSDB);
            cluster.await("two instances", () -> first.isRunning() && second.isRunning());
            cluster.produce(EVENTS_BEFORE);
            cluster.receive(EVENTS_BEFORE);
            cluster.await("standbys", () -> first.stores().size() == STORES && second.stores().size() == STORES);
            assertEquals(Set.of("rocksdb"), keepers(cluster, "first"));

            Future<?> events = thread.submit(() -> {
                while (!isDone.get()) {
                    cluster.produce(Cluster.USERS);
                    TimeUnit.MILLISECONDS.sleep(PAUSE_MS);
                }
                return null;
            });
            Program movedFirst = move(cluster, "first", first, isRemoved);
            int between = cluster.produced();
            cluster.receive(between);
            Program movedSecond = move(cluster, "second", second, isRemoved);
            isDone.set(true);
            events.get();
            cluster.receive(cluster.produced());
            cluster.check();
            System.out.println("measured: " + cluster.produced() + " events in all, " + between
                    + " of them before the second instance was stopped");
            cluster.await("two instances", () -> movedFirst.isRunning() && movedSecond.isRunning());
            cluster.awaitRows(movedFirst, movedSecond);
            Set<String> expected = isRemoved ? Set.of("kvilt") : Set.of("kvilt", "rocksdb");
            for (String name : List.of("first", "second")) {
                assertEquals(expected, keepers(cluster, name), name);
            }
        } finally {
            isDone.set(true);
            thread.shutdown();
        }
    }

    /** Stops the instance, removes its state, and starts it with the line of Kvilt. */
    private static Program move(Cluster cluster, String name, Program instance, boolean isRemoved) throws Exception {
        long begin = System.nanoTime();
        instance.stop();
        if (isRemoved) {
            Utils.delete(cluster.state(name).toFile());
        }
        String stopped = seconds(begin);
        Program moved = cluster.instance(name, Keeper.KVILT);
        cluster.await(name, () -> moved.isRunning() && moved.stores().size() == STORES);
        String running = seconds(begin);
        assertFalse(moved.told("begin").isEmpty(), "nothing says from where it restores");
        for (String begun : moved.told("begin")) {
            assertEquals("0", begun.split(" ")[3], "its changelog is not read from the begin: " + begun);
        }
        System.out.println("measured: " + name + (isRemoved ? ", without" : ", with")
                + " its old directory: stopped in " + stopped + " s, running with all stores in " + running + " s");
        return moved;
    }

    /** What keeps rows below the state directory of an instance. */
    private static Set<String> keepers(Cluster cluster, String instance) throws IOException {
        try (Stream<Path> files = Files.walk(cluster.state(instance), 3)) {
            return files.map(path -> path.getFileName().toString())
                    .filter(name -> name.equals("kvilt") || name.equals("rocksdb"))
                    .collect(Collectors.toSet());
        }
    }
}
