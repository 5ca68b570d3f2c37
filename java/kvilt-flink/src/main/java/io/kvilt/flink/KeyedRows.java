package io.kvilt.flink;

import io.kvilt.KeyRange;
import io.kvilt.Kvilt;
import io.kvilt.KviltException;
import io.kvilt.KviltIterator;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.flink.streaming.api.TimerService;

/**
 * The rows of one key of the stream: a sorted map from bytes to bytes, which nobody else reads or writes.
 *
 * <p>A {@link KviltFunction} gets it for the time of a call, and for the thread of that call; later use throws
 * {@link IllegalStateException}. Rows are ordered by their keys' bytes, compared as numbers from 0 to 255. A key may be
 * empty; together with the stream's key, as Flink serializes it, it may have 64 KiB less four bytes. A value has 64 MiB
 * at most.
 *
 * <p>Two keys of the stream are the same if Flink serializes them to the same bytes. A key that has no order, such as a
 * set, is refused; an {@code equals} that ignores a part of the key is not followed.
 * Its hash code must be the same in each process, which that of an enum in it is not: then no checkpoint is restored.
 *
 * <p>Every method may throw a {@link KviltException}, such as {@code NO_SPACE}. Let it go: then the task fails, and
 * Flink restores it.
 */
public final class KeyedRows {
    private final Kvilt db;
    private final TimerService timers;
    private final List<KeyedIterator> iterators = new ArrayList<>();

    /** What all engine keys of these rows begin with; null outside of calls. */
    private byte[] prefix;

    private Object key;
    private Long timestamp;

    KeyedRows(Kvilt db, TimerService timers) {
        this.db = db;
        this.timers = timers;
    }

    /** Makes it the rows of a key. */
    void begin(Object key, byte[] prefix, Long timestamp) {
        this.key = key;
        this.prefix = prefix;
        this.timestamp = timestamp;
    }

    /** Makes it the rows of no key, and closes what was left open. */
    void end() {
        prefix = null;
        key = null;
        timestamp = null;
        // The last one first, as each takes itself out.
        for (int i = iterators.size() - 1; i >= 0; i--) {
            iterators.get(i).close();
        }
    }

    void closed(KeyedIterator iterator) {
        iterators.remove(iterator);
    }

    /**
     * The key of the stream that these rows belong to.
     *
     * @param <K> its type
     * @return the key
     */
    @SuppressWarnings("unchecked")
    public <K> K key() {
        prefix();
        return (K) key;
    }

    /**
     * The timestamp of the event, or the time of the timer.
     *
     * @return the timestamp, in milliseconds; null if the event has none
     */
    public Long timestamp() {
        prefix();
        return timestamp;
    }

    /**
     * Flink's clocks, and timers of this key. {@link KviltFunction#onTimer} is called when one fires.
     *
     * @return the timer service
     */
    public TimerService timers() {
        prefix();
        return timers;
    }

    /**
     * The value of a row, or null if there is no such row.
     *
     * @param key the row's key
     * @return a copy of the value, or null
     */
    public byte[] get(byte[] key) {
        return db.get(row(key));
    }

    /**
     * Whether there is such a row. The value is not copied.
     *
     * @param key the row's key
     * @return whether there is
     */
    public boolean contains(byte[] key) {
        return db.keyExists(row(key));
    }

    /**
     * Gives a row a value, in place of the one it had.
     *
     * @param key the row's key
     * @param value the value
     */
    public void put(byte[] key, byte[] value) {
        db.put(row(key), Objects.requireNonNull(value, "value"));
    }

    /**
     * Deletes a row; no error if there is none.
     *
     * @param key the row's key
     */
    public void delete(byte[] key) {
        db.delete(row(key));
    }

    /**
     * Deletes all rows of a range, in one step. Costs little however many there are.
     *
     * @param range a range of keys; {@link KeyRange#all()} is all rows of this key of the stream
     */
    public void deleteRange(KeyRange range) {
        db.deleteRange(range.under(prefix()));
    }

    /**
     * An empty batch, for rows of this key: many writes in one go cost less than each by itself.
     *
     * @return the batch, to be given to {@link #write}
     */
    public KeyedBatch newBatch() {
        return new KeyedBatch(prefix());
    }

    /**
     * Does all that a batch holds. The batch stays as it is.
     *
     * @param batch the batch
     * @throws IllegalArgumentException if it was made in another call
     */
    public void write(KeyedBatch batch) {
        if (batch.prefix != prefix()) {
            throw new IllegalArgumentException("the batch was made in another call, for other rows");
        }
        db.write(batch.operations);
    }

    /**
     * The rows of a range, in the order of their keys, as they are now: later writes are not seen.
     *
     * @param range a range of keys
     * @return an iterator, at the first row if there is one; what is not closed before is closed when the call ends
     */
    public KeyedIterator scan(KeyRange range) {
        return opened(db.scan(range.under(prefix())));
    }

    /**
     * As {@link #scan(KeyRange)}, where it is known about how many rows will be read: they are fetched at once.
     *
     * @param range a range of keys
     * @param rows about how many rows will be read
     * @return an iterator, at the first row if there is one
     */
    public KeyedIterator scan(KeyRange range, int rows) {
        return opened(db.scan(range.under(prefix()), rows));
    }

    /**
     * As {@link #scan(KeyRange)}, and at the last row, to be left by {@link KeyedIterator#prev()}.
     *
     * @param range a range of keys
     * @return an iterator, at the last row if there is one
     */
    public KeyedIterator scanReverse(KeyRange range) {
        return opened(db.scanReverse(range.under(prefix())));
    }

    /**
     * As {@link #scanReverse(KeyRange)}, where it is known about how many rows will be read.
     *
     * @param range a range of keys
     * @param rows about how many rows will be read
     * @return an iterator, at the last row if there is one
     */
    public KeyedIterator scanReverse(KeyRange range, int rows) {
        return opened(db.scanReverse(range.under(prefix()), rows));
    }

    private KeyedIterator opened(KviltIterator rows) {
        KeyedIterator iterator = new KeyedIterator(this, rows, prefix());
        iterators.add(iterator);
        return iterator;
    }

    private byte[] row(byte[] key) {
        return Prefixes.row(prefix(), key);
    }

    private byte[] prefix() {
        byte[] prefix = this.prefix;
        if (prefix == null) {
            throw new IllegalStateException(
                    "rows are used outside of the call that they were given to: only while process or onTimer runs"
                            + " is it known which key they belong to");
        }
        return prefix;
    }
}
