package io.kvilt.kafka.cluster;

import static io.kvilt.kafka.cluster.Cluster.STORES;
import static io.kvilt.kafka.cluster.Cluster.seconds;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.kafka.cluster.Instance.Keeper;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Three brokers and two instances with a standby each. An instance, then a broker, is killed while events come in: each
 * event is there once, in order, and the instance that comes back replays its tail.
 */
class ClusterTest {
    @TempDir
    Path directory;

    @Test
    @Timeout(value = 20, unit = TimeUnit.MINUTES)
    void nothing_is_lost_and_nothing_comes_twice() throws Exception {
        try (Cluster cluster = new Cluster(directory, 3, 0)) {
            Program first = cluster.instance("first", Keeper.KVILT);
            Program second = cluster.instance("second", Keeper.KVILT);
            cluster.await("two instances", () -> first.isRunning() && second.isRunning());

            cluster.produce(20_000);
            cluster.receive(20_000);
            cluster.await("standbys", () -> first.stores().size() == STORES && second.stores().size() == STORES);
            Map<String, Long> known = new HashMap<>();
            for (String store : List.of("timeline", "counts")) {
                for (int partition = 0; partition < Cluster.PARTITIONS; partition++) {
                    long committed = cluster.committed(store, partition);
                    known.put(store + " " + partition, Math.min(committed, first.followed(store, partition)));
                }
            }
            long killed = produceAndKill(cluster, 20_000, first);
            cluster.receive(40_000);
            System.out.println(
                    "measured: all 40,000 events " + seconds(killed) + " s after the kill of an instance");

            long restarted = System.nanoTime();
            Program again = cluster.instance("first", Keeper.KVILT);
            cluster.await("the instance that was killed", () -> again.isRunning() && again.stores().size() == STORES);
            List<String> begins = again.told("begin");
            System.out.println("measured: it came back in " + seconds(restarted)
                    + " s; store, partition, first offset: " + begins + again.told("restored"));
            assertFalse(begins.isEmpty(), "nothing says from where it restores");
            for (String begin : begins) {
                String[] words = begin.split(" ");
                long least = known.get(words[1] + " " + words[2]);
                // Markers of transactions count in the changelog.
                assertTrue(
                        Long.parseLong(words[3]) >= least * 9 / 10,
                        () -> "it replays what it knew: " + begins + " " + known);
            }

            killed = produceAndKill(cluster, 10_000, cluster.brokers.get(2));
            cluster.receive(50_000);
            System.out.println("measured: all 50,000 events " + seconds(killed) + " s after the kill of a broker");
            cluster.check();
            cluster.await("two instances", () -> again.isRunning() && second.isRunning());
            cluster.awaitRows(again, second);
        }
    }

    /** Kills a program when half of the events are out, and results of some of them have come. */
    private static long produceAndKill(Cluster cluster, int events, Program program) throws Exception {
        cluster.produce(events / 2);
        cluster.receive(cluster.produced() - events / 2 + events / 8);
        long killed = System.nanoTime();
        program.kill();
        cluster.produce(events / 2);
        return killed;
    }
}
