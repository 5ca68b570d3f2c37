package io.kvilt.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Objects;
import java.util.Set;

/** Compares the results of an operation on Kafka's stores in memory, on those on RocksDB, and on ours. */
final class Agreement {
    /** Begins a result that is an error. */
    static final String FAILURE = "failure: ";

    private final Object run;
    private int steps;

    /** Results with rows, of one of Kafka's two at least, and those of them in which the two agreed. */
    private int found;

    private int agreed;

    /** @param run what each failure tells of the run */
    Agreement(Object run) {
        this.run = run;
    }

    /**
     * All three are the same. Where Kafka's two differ, ours is one of them: the RocksDB stores of Kafka 4.4 give wrong
     * rows where a range has one end only and some were not committed.
     */
    void all(Object operation, Object memory, Object rocks, Object ours) {
        if (agree(memory, rocks)) {
            assertEquals(rocks, ours, () -> "ours" + where(operation));
        } else if (!Objects.equals(rocks, ours)) {
            assertEquals(memory, ours, () -> "ours" + where(operation));
        }
    }

    /**
     * Ours are RocksDB's rows, in the same order; in memory the order is another. Where Kafka's two have different rows,
     * ours are those of one of them: RocksDB's pass over rows of keys that are followed by others in some ranges.
     */
    void rows(Object operation, List<String> memory, List<String> rocks, List<String> ours) {
        if (agree(sorted(memory), sorted(rocks))) {
            assertEquals(rocks, ours, () -> "ours" + where(operation));
        } else if (!rocks.equals(ours)) {
            assertEquals(sorted(memory), sorted(ours), () -> "ours" + where(operation));
        }
    }

    /**
     * Under Kafka's cache, rows in any order. Where Kafka's two have different rows, nothing is compared: in some
     * backward ranges the cache gives the rows of a segment twice, or fails, over RocksDB and over ours.
     */
    void rowsUnderCache(Object operation, List<String> memory, List<String> rocks, List<String> ours) {
        if (agree(sorted(memory), sorted(rocks))) {
            assertEquals(sorted(rocks), sorted(ours), () -> "ours" + where(operation));
        }
    }

    /** Without this a comparison with one of Kafka's would say little. */
    void assertKafkasAgreeIn(int percent) {
        String told = agreed + " of " + found + " results with rows, in " + steps + " steps of " + run;
        assertTrue(found >= steps / 10 && agreed * 100 >= found * percent, told);
    }

    private boolean agree(Object memory, Object rocks) {
        boolean isSame = Objects.equals(memory, rocks);
        steps++;
        if (hasRows(memory) || hasRows(rocks)) {
            found++;
            agreed += isSame ? 1 : 0;
        }
        return isSame;
    }

    private static boolean hasRows(Object result) {
        String text = String.valueOf(result);
        return !Set.of("null", "[]", "[] []", "[null]").contains(text) && !text.startsWith("[" + FAILURE);
    }

    private String where(Object operation) {
        return " by " + operation + ", at step " + steps + " of " + run;
    }

    private static List<String> sorted(List<String> rows) {
        return rows.stream().sorted().toList();
    }
}
