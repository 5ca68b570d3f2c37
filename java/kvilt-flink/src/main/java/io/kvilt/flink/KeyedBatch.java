package io.kvilt.flink;

import io.kvilt.WriteBatch;
import java.util.Objects;

/**
 * Writes of rows of one key, which {@link KeyedRows#write} does in one native call. A later one on a row wins over an
 * earlier one. It serves the call in which {@link KeyedRows#newBatch()} made it.
 *
 * <p>At most 32,768 operations and 72 MiB.
 */
public final class KeyedBatch {
    final byte[] prefix;
    final WriteBatch operations = new WriteBatch();

    KeyedBatch(byte[] prefix) {
        this.prefix = prefix;
    }

    /**
     * Adds: give a row this value.
     *
     * @param key the row's key
     * @param value the value
     */
    public void put(byte[] key, byte[] value) {
        operations.put(Prefixes.row(prefix, key), Objects.requireNonNull(value, "value"));
    }

    /**
     * Adds: delete a row.
     *
     * @param key the row's key
     */
    public void delete(byte[] key) {
        operations.delete(Prefixes.row(prefix, key));
    }

    /**
     * How many operations it holds.
     *
     * @return the operations
     */
    public int count() {
        return operations.count();
    }

    /** Takes everything out; it can be filled again. */
    public void clear() {
        operations.clear();
    }
}
