package io.kvilt.flink;

import io.kvilt.KviltIterator;
import java.util.Arrays;
import java.util.NoSuchElementException;
import java.util.function.BiConsumer;

/**
 * Rows of one key of the stream in the order of their keys, in both directions, as they were when the scan began.
 *
 * <pre>{@code
 * try (KeyedIterator found = rows.scan(KeyRange.prefix(prefix))) {
 *     for (; found.isValid(); found.next()) {
 *         use(found.key(), found.value());
 *     }
 * }
 * }</pre>
 *
 * <p>It is at a row, or at none: behind the last row, or before the first one. It lives in the call in which it was
 * made, at most: what is not closed before is closed when that call ends.
 */
public final class KeyedIterator implements AutoCloseable {
    private final KeyedRows owner;
    private final KviltIterator rows;
    private final byte[] prefix;

    KeyedIterator(KeyedRows owner, KviltIterator rows, byte[] prefix) {
        this.owner = owner;
        this.rows = rows;
        this.prefix = prefix;
    }

    /**
     * Whether it is at a row.
     *
     * @return whether there is a row to be read
     */
    public boolean isValid() {
        return rows.isValid();
    }

    /**
     * Goes to the next row, or behind the last one.
     *
     * @throws NoSuchElementException if it is at no row
     */
    public void next() {
        rows.next();
    }

    /**
     * Goes to the row before, or before the first one.
     *
     * @throws NoSuchElementException if it is at no row
     */
    public void prev() {
        rows.prev();
    }

    /** Goes to the first row. */
    public void seekToFirst() {
        rows.seekToFirst();
    }

    /** Goes to the last row. */
    public void seekToLast() {
        rows.seekToLast();
    }

    /**
     * Goes to the first row whose key is {@code target} or comes behind it.
     *
     * @param target a row's key
     */
    public void seek(byte[] target) {
        rows.seek(Prefixes.row(prefix, target));
    }

    /**
     * Goes to the last row whose key is {@code target} or comes before it.
     *
     * @param target a row's key
     */
    public void seekForPrev(byte[] target) {
        rows.seekForPrev(Prefixes.row(prefix, target));
    }

    /**
     * The key of the row that it is at.
     *
     * @return a copy of the key
     * @throws NoSuchElementException if it is at no row
     */
    public byte[] key() {
        byte[] row = rows.key();
        return Arrays.copyOfRange(row, prefix.length, row.length);
    }

    /**
     * The value of the row that it is at.
     *
     * @return a copy of the value
     * @throws NoSuchElementException if it is at no row
     */
    public byte[] value() {
        return rows.value();
    }

    /**
     * Gives the row that it is at, and all behind it, to an action.
     *
     * @param action what to do with key and value
     */
    public void forEachRemaining(BiConsumer<? super byte[], ? super byte[]> action) {
        for (; isValid(); next()) {
            action.accept(key(), value());
        }
    }

    /** Closes it; every later call throws {@link IllegalStateException}. */
    @Override
    public void close() {
        rows.close();
        owner.closed(this);
    }
}
