package io.kvilt;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.List;

/**
 * What can be read: a store or keyspace as it is now, or as it was when a snapshot was taken.
 *
 * <p>Any number of threads may read at once; no read waits for a writer.
 */
public abstract sealed class KviltReader implements AutoCloseable permits KviltWriter, Snapshot {
    /** What {@link #get(byte[], byte[])} returns for a key without a value. */
    public static final int NOT_FOUND = -1;

    /** Longer keys go to the native side as arrays; the store refuses them. */
    static final int KEY_BYTES_MAX = 64 << 10;

    /** Room for keys of {@link #getMany} to begin with, at most: it grows to what they take. */
    private static final int MANY_BYTES_FIRST_MAX = 16 << 20;

    /** Null until the constructor of a store has made it. */
    Handle handle;

    KviltReader() {}

    /** The store that this belongs to. */
    abstract Kvilt store();

    /**
     * The key's value, or null if it has none.
     *
     * @param key the key
     * @return a copy of the value, or null
     * @throws KviltException if the key is too long, or the disk could not be read
     */
    public final byte[] get(byte[] key) {
        int length = key.length;
        if (length > KEY_BYTES_MAX) {
            return getLarge(key);
        }
        int more = 0;
        while (true) {
            Scratch scratch = Scratch.of(length + more);
            scratch.buffer.put(0, key);
            long found = read(scratch, scratch.capacity, length);
            if (found < 0) {
                return null;
            }
            if (found <= scratch.capacity - length) {
                return scratch.copy(length, (int) found);
            }
            if (found > Scratch.BYTES_MAX - length) {
                return getLarge(key);
            }
            more = (int) found;
        }
    }

    /**
     * Copies the key's value to an array.
     *
     * @param key the key
     * @param value where the value goes; only its first bytes, as far as there is room
     * @return the length of the whole value, which may be more than there was room for, or {@link #NOT_FOUND}
     * @throws KviltException as {@link #get(byte[])}
     */
    public final int get(byte[] key, byte[] value) {
        int length = key.length;
        if ((long) length + value.length <= Scratch.BYTES_MAX && length <= KEY_BYTES_MAX) {
            Scratch scratch = Scratch.of(length + value.length);
            scratch.buffer.put(0, key);
            long found = read(scratch, scratch.capacity, length);
            if (found <= scratch.capacity - length) {
                if (found > 0) {
                    scratch.buffer.get(length, value, 0, (int) Math.min(found, value.length));
                }
                return (int) found;
            }
        }
        byte[] whole = get(key);
        if (whole == null) {
            return NOT_FOUND;
        }
        System.arraycopy(whole, 0, value, 0, Math.min(whole.length, value.length));
        return whole.length;
    }

    /**
     * Copies the key's value to a buffer: from its position on, and its limit becomes the end of the value. Two direct
     * buffers cost the least.
     *
     * <p>A buffer over memory of an {@code Arena} that other threads may close must stay open until the call returns.
     *
     * @param key the key: what remains in the buffer, which is taken from it
     * @param value where the value goes, if it fits as a whole; else the buffer stays as it is
     * @return the length of the value, which may be more than there was room for, or {@link #NOT_FOUND}
     * @throws KviltException as {@link #get(byte[])}
     * @throws IllegalStateException if the reader is closed, or the arena of a buffer is
     */
    public final int get(ByteBuffer key, ByteBuffer value) {
        if (value.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        // Once each: the native side does not check them, and another thread may move them.
        int keyAt = key.position();
        int keyEnd = key.limit();
        int valueAt = value.position();
        int length = Math.max(0, keyEnd - keyAt);
        int room = Math.max(0, value.limit() - valueAt);
        int found;
        if (key.isDirect() && value.isDirect()) {
            touch(key, keyAt, length);
            touch(value, valueAt, room);
            int stripe = handle.enter();
            try {
                found = (int) Native.getDirect(handle.number, key, keyAt, length, value, valueAt, room);
            } finally {
                handle.leave(stripe);
            }
        } else {
            byte[] keyBytes = new byte[length];
            key.get(keyAt, keyBytes);
            byte[] whole = get(keyBytes);
            found = whole == null ? NOT_FOUND : whole.length;
            if (whole != null && found <= room) {
                value.put(valueAt, whole);
            }
        }
        key.position(keyEnd);
        if (found >= 0 && found <= room) {
            value.limit(valueAt + found);
        }
        return found;
    }

    /**
     * Whether the key has a value. The value is not copied.
     *
     * @param key the key
     * @return whether it has one
     * @throws KviltException as {@link #get(byte[])}
     */
    public final boolean keyExists(byte[] key) {
        if (key.length > KEY_BYTES_MAX) {
            return getLarge(key) != null;
        }
        Scratch scratch = Scratch.of(key.length);
        scratch.buffer.put(0, key);
        return read(scratch, key.length, key.length) >= 0;
    }

    /**
     * The values of several keys, in one native call. An engine may have several reads of the drive in flight.
     *
     * <p>In a store or keyspace, writes may come in between the keys; a snapshot reads all of them at its moment.
     *
     * @param keys the keys
     * @return a value for each key, in their order; null for a key that has none
     * @throws KviltException as {@link #get(byte[])}: one for all keys
     */
    public final List<byte[]> getMany(List<byte[]> keys) {
        Packed packed = new Packed((int) Math.min(MANY_BYTES_FIRST_MAX, 64L * keys.size()));
        for (byte[] key : keys) {
            packed.add(key);
        }
        int stripe = handle.enter();
        try {
            return Packed.unpack(Native.getMany(handle.number, packed.bytes, packed.length));
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * An iterator over all rows, as of now, which is at no row yet: {@code seek} it.
     *
     * @return the iterator, to be closed
     * @throws KviltException if there are too many iterators and snapshots
     */
    public final KviltIterator newIterator() {
        return newIterator(KeyRange.all());
    }

    /**
     * An iterator over the rows of a range, as of now, which is at no row yet: {@code seek} it. Rows out of the range
     * do not exist for it.
     *
     * @param range the range
     * @return the iterator, to be closed
     * @throws KviltException if there are too many iterators and snapshots
     */
    public final KviltIterator newIterator(KeyRange range) {
        return KviltIterator.unplaced(this, range);
    }

    /**
     * An iterator over the rows of a range, as of now, which is at the first one. Cheaper than
     * {@link #newIterator(KeyRange)} with a seek: a short range takes one native call in all.
     *
     * @param range the range
     * @return the iterator, to be closed
     * @throws KviltException as for {@link #get(byte[])}; or if there are too many iterators and snapshots
     */
    public final KviltIterator scan(KeyRange range) {
        return KviltIterator.placed(this, range, false, 0);
    }

    /**
     * As {@link #scan(KeyRange)}, for about so many rows: so many come by one native call, if they take less than
     * 128 KiB.
     *
     * @param range the range
     * @param rows how many rows will be read; a hint, that changes nothing else
     * @return the iterator, to be closed
     * @throws KviltException as {@link #scan(KeyRange)}
     */
    public final KviltIterator scan(KeyRange range, int rows) {
        return KviltIterator.placed(this, range, false, rows);
    }

    /**
     * As {@link #scan(KeyRange)}, at the last row of the range; go on by {@link KviltIterator#prev()}.
     *
     * @param range the range
     * @return the iterator, to be closed
     * @throws KviltException as {@link #scan(KeyRange)}
     */
    public final KviltIterator scanReverse(KeyRange range) {
        return KviltIterator.placed(this, range, true, 0);
    }

    /**
     * As {@link #scanReverse(KeyRange)}, for about so many rows.
     *
     * @param range the range
     * @param rows how many rows will be read; a hint, that changes nothing else
     * @return the iterator, to be closed
     * @throws KviltException as {@link #scan(KeyRange)}
     */
    public final KviltIterator scanReverse(KeyRange range, int rows) {
        return KviltIterator.placed(this, range, true, rows);
    }

    /**
     * Whether it can still be used: neither it nor its store is closed.
     *
     * @return whether it can
     */
    public final boolean isOpen() {
        return !handle.isClosed();
    }

    /** Closes it; every later call throws {@link IllegalStateException}, closing again does nothing. */
    @Override
    public void close() {
        handle.close();
    }

    /**
     * Throws if this thread may not use the memory of a direct buffer. From Java 22 on it may be that of an arena that
     * was closed or is another thread's; Java checks that where it reads a byte, and the native side cannot.
     */
    static void touch(ByteBuffer buffer, int at, int length) {
        if (length > 0) {
            buffer.get(at);
        }
    }

    /** Reads the key at the begin of the scratch memory; the value lies behind it, if it is that short. */
    private long read(Scratch scratch, int capacity, int length) {
        Handle handle = this.handle;
        int stripe = handle.enter();
        try {
            return Native.get(handle.number, scratch.address, capacity, length);
        } finally {
            handle.leave(stripe);
        }
    }

    private byte[] getLarge(byte[] key) {
        int stripe = handle.enter();
        try {
            return Native.getLarge(handle.number, key);
        } finally {
            handle.leave(stripe);
        }
    }
}
