package io.kvilt.kafka.cluster;

import static io.kvilt.kafka.cluster.Cluster.STORES;
import static io.kvilt.kafka.cluster.Cluster.seconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.kafka.cluster.Instance.Keeper;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * One broker and one instance whose stores write before their task commits. The instance halts in the middle of a
 * transaction: what that wrote is neither in the stores nor counted when the instance is back.
 */
class EarlyWritesTest {
    private static final int EVENTS = 10_000;

    @TempDir
    Path directory;

    @Test
    @Timeout(value = 20, unit = TimeUnit.MINUTES)
    void writes_of_a_transaction_that_was_killed_count_for_nothing() throws Exception {
        try (Cluster cluster = new Cluster(directory, 1, 0)) {
            Program first = cluster.instance("first", Keeper.KVILT_EARLY);
            cluster.await("the instance", () -> first.isRunning() && first.stores().size() == STORES);
            cluster.produce(EVENTS);
            cluster.receive(EVENTS);
            first.halt();
            cluster.produce(EVENTS);
            cluster.await("end of the instance", () -> !first.process.isAlive());
            assertEquals(Instance.HALTED, first.process.exitValue());
            long restarted = System.nanoTime();
            Program second = cluster.instance("first", Keeper.KVILT_EARLY);
            cluster.receive(2 * EVENTS);
            List<String> begins = second.told("begin");
            System.out.println("measured: all events " + seconds(restarted) + " s after the start; " + begins);
            cluster.check();
            cluster.awaitRows(second);
            String told = "no store was in the middle of a transaction: " + begins;
            assertTrue(begins.stream().anyMatch(EarlyWritesTest::isAnew), told);
        }
    }

    /** Whether it is a store of the events, and is read from the beginning of its changelog. */
    private static boolean isAnew(String begin) {
        String[] words = begin.split(" ");
        return words[1].equals("timeline") && words[3].equals("0");
    }
}
