package io.kvilt.kafka.cluster;

import static io.kvilt.kafka.cluster.Cluster.STORES;
import static io.kvilt.kafka.cluster.Cluster.seconds;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.kafka.cluster.Instance.Keeper;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * One broker and one instance whose stores write before their task commits. It is killed in the middle of a
 * transaction: what that wrote is neither in the stores nor counted when the instance is back.
 */
class EarlyWritesTest {
    private static final int EVENTS = 20_000;

    /** Limits how often it is killed until that was within a transaction. */
    private static final int KILLS_MAX = 5;

    @TempDir
    Path directory;

    @Test
    @Timeout(value = 20, unit = TimeUnit.MINUTES)
    void writes_of_a_transaction_that_was_killed_count_for_nothing() throws Exception {
        try (Cluster cluster = new Cluster(directory, 1, 0)) {
            Program instance = cluster.instance("first", Keeper.KVILT_EARLY);
            Program first = instance;
            cluster.await("the instance", () -> first.isRunning() && first.stores().size() == STORES);
            List<String> begins = List.of();
            // A kill may fall between two transactions; then there is another one.
            for (int round = 1; round <= KILLS_MAX && begins.stream().noneMatch(EarlyWritesTest::isAnew); round++) {
                cluster.produce(EVENTS);
                // It is at work on the rest.
                cluster.receive((round - 1) * EVENTS + EVENTS / 8);
                instance.kill();
                long restarted = System.nanoTime();
                instance = cluster.instance("first", Keeper.KVILT_EARLY);
                cluster.receive(round * EVENTS);
                begins = instance.told("begin");
                System.out.println("measured: all events " + seconds(restarted) + " s after the start; " + begins);
            }
            cluster.check();
            cluster.awaitRows(instance);
            String told = "no store was in the middle of a transaction: " + begins;
            assertTrue(begins.stream().anyMatch(EarlyWritesTest::isAnew), told);
        }
    }

    /** Whether a store is read from the beginning of its changelog. */
    private static boolean isAnew(String begin) {
        return begin.split(" ")[3].equals("0");
    }
}
