package io.kvilt.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Objects;

/** Compares the results of an operation on Kafka's stores in memory, on those on RocksDB, and on ours. */
final class Agreement {
    private final String run;
    private int steps;

    /** Steps at which Kafka's two gave the same rows. */
    private int agreed;

    /** @param run what each failure tells of the run */
    Agreement(Object run) {
        this.run = run.toString();
    }

    /**
     * All three are the same. Where Kafka's two differ, ours is one of them: the RocksDB stores of Kafka 4.4 give wrong
     * rows where a range has one end only and some were not committed.
     */
    void all(Object operation, Object memory, Object rocks, Object ours) {
        if (Objects.equals(memory, rocks)) {
            agreed++;
            assertEquals(rocks, ours, () -> "ours" + where(operation));
        } else if (!Objects.equals(rocks, ours)) {
            assertEquals(memory, ours, () -> "ours" + where(operation));
        }
        steps++;
    }

    /**
     * Ours are RocksDB's rows, in the same order; in memory the order is another. Where Kafka's two have different rows,
     * ours are those of one of them: RocksDB's pass over rows of keys that are followed by others in some ranges.
     */
    void rows(Object operation, List<String> memory, List<String> rocks, List<String> ours) {
        if (sorted(memory).equals(sorted(rocks))) {
            agreed++;
            assertEquals(rocks, ours, () -> "ours" + where(operation));
        } else if (!rocks.equals(ours)) {
            assertEquals(sorted(memory), sorted(ours), () -> "ours" + where(operation));
        }
        steps++;
    }

    /**
     * Under Kafka's cache, rows in any order. Where Kafka's two have different rows, nothing is compared: in some
     * backward ranges the cache gives the rows of a segment twice, or fails, over RocksDB and over ours.
     */
    void rowsUnderCache(Object operation, List<String> memory, List<String> rocks, List<String> ours) {
        if (sorted(memory).equals(sorted(rocks))) {
            agreed++;
            assertEquals(sorted(rocks), sorted(ours), () -> "ours" + where(operation));
        }
        steps++;
    }

    /** Without this a comparison with either of Kafka's would say little. */
    void assertKafkasMostlyAgree() {
        assertTrue(agreed > steps * 3 / 4, () -> agreed + " of " + steps + " steps of " + run);
    }

    private String where(Object operation) {
        return " by " + operation + ", at step " + steps + " of " + run;
    }

    private static List<String> sorted(List<String> rows) {
        return rows.stream().sorted().toList();
    }
}
