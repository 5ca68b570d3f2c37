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

    @TempDir
    Path directory;

    @Test
    @Timeout(value = 20, unit = TimeUnit.MINUTES)
    void writes_of_a_transaction_that_was_killed_count_for_nothing() throws Exception {
        try (Cluster cluster = new Cluster(directory, 1, 0)) {
            Program killed = cluster.instance("first", Keeper.KVILT_EARLY);
            cluster.await("the instance", () -> killed.isRunning() && killed.stores().size() == STORES);
            cluster.produce(EVENTS);
            // It is at work on the rest.
            cluster.receive(EVENTS / 8);
            killed.kill();
            long restarted = System.nanoTime();
            Program again = cluster.instance("first", Keeper.KVILT_EARLY);
            cluster.receive(EVENTS);
            List<String> begins = again.told("begin");
            System.out.println("measured: all events " + seconds(restarted) + " s after the start; " + begins);
            cluster.check();
            cluster.awaitRows(again);
            assertTrue(
                    begins.stream().anyMatch(begin -> begin.split(" ")[3].equals("0")),
                    () -> "no store was in the middle of a transaction: " + begins);
        }
    }
}
