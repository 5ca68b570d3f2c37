package io.kvilt.kafka;

import io.kvilt.kafka.Storage.Range;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;

/**
 * Writes of a transactional store that wait for the commit of their task, by key: the last one of each.
 *
 * <p>One thread writes, under the lock of {@link Storage}; any thread may get a value or the bytes. The arrays are
 * copies, as the program may use its own for something else.
 */
final class Uncommitted {
    /** Stands for a value that is taken away. */
    private static final byte[] DELETED = new byte[0];

    /** What a row takes beside key and value, about. */
    private static final int ROW_BYTES = 96;

    private final NavigableMap<byte[], byte[]> rows = new ConcurrentSkipListMap<>(Arrays::compareUnsigned);
    private volatile long bytes;

    boolean isEmpty() {
        return rows.isEmpty();
    }

    int count() {
        return rows.size();
    }

    /** What all of it takes, about. */
    long bytes() {
        return bytes;
    }

    /** The value, not copied; one that {@link #isDeleted} if it is taken away, null if nothing waits for the key. */
    byte[] get(byte[] key) {
        return rows.get(key);
    }

    /** Whether a value that waits takes its key's value away. */
    static boolean isDeleted(byte[] waiting) {
        return waiting == DELETED;
    }

    /** Gives the key a value, or takes it away for null. */
    void put(byte[] key, byte[] value) {
        byte[] before = rows.put(key.clone(), value == null ? DELETED : value.clone());
        bytes += before == null ? ROW_BYTES + key.length : -before.length;
        bytes += value == null ? 0 : value.length;
    }

    /** Forgets what waits before a key. */
    void forget(byte[] before) {
        NavigableMap<byte[], byte[]> gone = rows.headMap(before, false);
        for (Map.Entry<byte[], byte[]> row : gone.entrySet()) {
            bytes -= ROW_BYTES + row.getKey().length + row.getValue().length;
        }
        gone.clear();
    }

    void clear() {
        rows.clear();
        bytes = 0;
    }

    /** All of it; values may be such that {@link #isDeleted}. */
    Collection<Map.Entry<byte[], byte[]>> rows() {
        return rows.entrySet();
    }

    /** A copy, as a scan must not see what is written later. */
    List<Map.Entry<byte[], byte[]>> rows(Range range, boolean isBackward) {
        if (rows.isEmpty()) {
            return List.of();
        }
        NavigableMap<byte[], byte[]> part = rows.tailMap(range.from(), true);
        if (range.to() != null) {
            if (Arrays.compareUnsigned(range.from(), range.to()) >= 0) {
                return List.of();
            }
            part = part.headMap(range.to(), false);
        }
        return new ArrayList<>((isBackward ? part.descendingMap() : part).entrySet());
    }
}
