package io.kvilt;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.ConcurrentModificationException;
import java.util.NoSuchElementException;
import java.util.function.BiConsumer;

/**
 * Rows in the order of their keys, in both directions, as they were when the iterator was made.
 *
 * <pre>{@code
 * try (KviltIterator rows = db.scan(KeyRange.prefix(prefix))) {
 *     for (; rows.isValid(); rows.next()) {
 *         use(rows.key(), rows.value());
 *     }
 * }
 * }</pre>
 *
 * <p>It is at a row, or at none: behind the last row, before the first one, and until it is placed. Rows come from the
 * native side in blocks, many a call: the first block has 16 KiB, each further one in the same direction twice as many,
 * up to 128 KiB. So a short scan costs little, and a long one asks seldom. One that is told how many rows it will read,
 * by {@link KviltReader#scan(KeyRange, int)}, asks for them at once, in blocks of up to 128 KiB.
 *
 * <p>One thread at a time may use it, and two that ask for rows at once get a {@link ConcurrentModificationException};
 * any thread may close it. Old versions that it may need are kept until it is closed. It does not need the snapshot or
 * keyspace that it was made from any more, only the store.
 */
public final class KviltIterator implements AutoCloseable {
    /** Numbers before the rows of a block; {@code scans.rs} draws a block. */
    private static final int HEAD_BYTES = 32;

    private static final int BLOCK_BYTES_FIRST = 16 << 10;

    private static final int BACKWARD = 1;
    private static final int AT_BOUND = 2;
    private static final int WITH_START = 4;

    private static final VarHandle IS_ASKING;

    static {
        try {
            IS_ASKING = MethodHandles.lookup().findVarHandle(KviltIterator.class, "isAsking", boolean.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final KviltReader reader;
    private final Handle store;

    /** Null if the block has all rows of the range. */
    private Handle handle;

    /** Changed by {@link #exchange} only; tests look at it. */
    Block block;

    private ByteBuffer buffer;

    /** Of the block: rows, which one is the current, and what is known of what lies beyond. */
    private int rows;
    private int row;
    private boolean isBackward;
    private boolean isEnd;
    private boolean isBegin;

    /** Of the current row, if there is one. */
    private boolean isValid;
    private int keyAt;
    private int keyLength;
    private int valueLength;

    /** Bytes that the next block is to have. */
    private int blockBytes = BLOCK_BYTES_FIRST;

    /**
     * Whether any thread but its maker has used it. A block goes back to be used again only if none has, and by the
     * maker, who cannot be reading it meanwhile.
     *
     * <p>{@link #check} sets it and looks at {@code isClosed} then; {@link #close} sets that first and looks at this
     * then. Both are sequentially consistent, so one of them sees the other.
     */
    private volatile boolean isShared;

    private final Thread maker;
    private volatile boolean isClosed;

    /** Only by {@link #IS_ASKING}: whether a thread is asking the native side for rows. */
    @SuppressWarnings("unused")
    private boolean isAsking;

    private KviltIterator(KviltReader reader, KeyRange range, int way, int bytes, int expected) {
        this.reader = reader;
        this.store = reader.store().handle;
        this.maker = Thread.currentThread();
        int asked = range.from.length + (range.to == null ? 0 : range.to.length);
        this.block = Block.of(HEAD_BYTES + Math.max(asked, bytes));
        this.buffer = block.buffer;
        buffer.put(HEAD_BYTES, range.from);
        int to = -1;
        if (range.to != null) {
            to = range.to.length;
            buffer.put(HEAD_BYTES + range.from.length, range.to);
        }
        try {
            open(range.from.length, to, way, bytes, expected);
        } catch (Throwable e) {
            giveBack();
            throw e;
        }
        isBackward = (way & BACKWARD) != 0;
        isBegin = true;
        isEnd = buffer.getInt(12) != 0;
    }

    /** Asks for the first rows; the bounds lie in the block. */
    private void open(int from, int to, int way, int bytes, int expected) {
        Handle view = reader.handle;
        int stripe = view.enter();
        try {
            rows = Native.scan(view.number, block.address, block.capacity, from, to, way, bytes, expected);
            long number = buffer.getLong(0);
            if (number != 0) {
                handle = own(number);
            }
        } finally {
            view.leave(stripe);
        }
    }

    private Handle own(long number) {
        try {
            return Handle.single(this, number, "an iterator of " + reader, Native::freeScan, store);
        } catch (Throwable e) {
            Native.freeScan(number);
            throw e;
        }
    }

    /** At no row. */
    static KviltIterator unplaced(KviltReader reader, KeyRange range) {
        return new KviltIterator(reader, range, 0, 0, 0);
    }

    /** At the first row, or at the last one. */
    static KviltIterator placed(KviltReader reader, KeyRange range, boolean isBackward, int expected) {
        int bytes = expected > 0 ? Block.LARGE_BYTES : BLOCK_BYTES_FIRST;
        // One more, since a loop goes on to the next row before it sees that it has enough.
        int rows = expected > 0 ? (int) Math.min(Integer.MAX_VALUE, expected + 1L) : 0;
        KviltIterator iterator = new KviltIterator(reader, range, isBackward ? BACKWARD : 0, bytes, rows);
        long needed = iterator.buffer.getLong(16);
        if (needed != 0) {
            try {
                iterator.refill(needed, 0, 0, AT_BOUND | (isBackward ? BACKWARD : 0));
            } catch (Throwable e) {
                iterator.close();
                throw e;
            }
        }
        iterator.blockBytes = expected > 0 ? Block.LARGE_BYTES : 2 * BLOCK_BYTES_FIRST;
        iterator.place(0);
        return iterator;
    }

    /**
     * Whether it is at a row.
     *
     * @return whether there is a row to be read
     */
    public boolean isValid() {
        check();
        return isValid;
    }

    /** Goes to the first row. */
    public void seekToFirst() {
        seekToEnd(false);
    }

    /** Goes to the last row. */
    public void seekToLast() {
        seekToEnd(true);
    }

    /**
     * Goes to the first row whose key is {@code target} or comes behind it.
     *
     * @param target the key
     */
    public void seek(byte[] target) {
        seek(target, false);
    }

    /**
     * Goes to the first row whose key is {@code target} or comes behind it.
     *
     * @param target the key: what remains in the buffer, which is taken from it
     */
    public void seek(ByteBuffer target) {
        seek(taken(target), false);
    }

    /**
     * Goes to the last row whose key is {@code target} or comes before it.
     *
     * @param target the key
     */
    public void seekForPrev(byte[] target) {
        seek(target, true);
    }

    /**
     * Goes to the last row whose key is {@code target} or comes before it.
     *
     * @param target the key: what remains in the buffer, which is taken from it
     */
    public void seekForPrev(ByteBuffer target) {
        seek(taken(target), true);
    }

    private static byte[] taken(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    /**
     * Goes to the next row, or behind the last one.
     *
     * @throws NoSuchElementException if it is at no row
     */
    public void next() {
        step(false);
    }

    /**
     * Goes to the row before, or before the first one.
     *
     * @throws NoSuchElementException if it is at no row
     */
    public void prev() {
        step(true);
    }

    /**
     * The key of the row that it is at.
     *
     * @return a copy of the key
     * @throws NoSuchElementException if it is at no row
     */
    public byte[] key() {
        checkRow();
        byte[] key = new byte[keyLength];
        buffer.get(keyAt, key);
        return key;
    }

    /**
     * The value of the row that it is at.
     *
     * @return a copy of the value
     * @throws NoSuchElementException if it is at no row
     */
    public byte[] value() {
        checkRow();
        byte[] value = new byte[valueLength];
        buffer.get(keyAt + keyLength, value);
        return value;
    }

    /**
     * Copies the key to a buffer: from its position on, and its limit becomes the end of the key.
     *
     * @param target where the key goes, if it fits as a whole; else the buffer stays as it is
     * @return the length of the key, which may be more than there was room for
     * @throws NoSuchElementException if it is at no row
     */
    public int key(ByteBuffer target) {
        checkRow();
        return copy(keyAt, keyLength, target);
    }

    /**
     * Copies the value to a buffer: from its position on, and its limit becomes the end of the value.
     *
     * @param target where the value goes, if it fits as a whole; else the buffer stays as it is
     * @return the length of the value, which may be more than there was room for
     * @throws NoSuchElementException if it is at no row
     */
    public int value(ByteBuffer target) {
        checkRow();
        return copy(keyAt + keyLength, valueLength, target);
    }

    /**
     * Gives this row and all behind it to {@code action}, and leaves the iterator behind the last one.
     *
     * @param action what takes key and value
     */
    public void forEachRemaining(BiConsumer<? super byte[], ? super byte[]> action) {
        while (isValid()) {
            action.accept(key(), value());
            next();
        }
    }

    /** Closes it; every later call throws {@link IllegalStateException}, closing again does nothing. */
    @Override
    public void close() {
        if (isClosed) {
            return;
        }
        isClosed = true;
        Handle open = handle;
        if (open != null) {
            open.close();
        }
        giveBack();
    }

    private void check() {
        if (Thread.currentThread() != maker && !isShared) {
            isShared = true;
        }
        if (isClosed) {
            throw new IllegalStateException("the iterator is closed");
        }
        store.check();
    }

    private void checkRow() {
        check();
        if (!isValid) {
            throw new NoSuchElementException("the iterator is at no row");
        }
    }

    private static int copied(ByteBuffer from, int at, int length, ByteBuffer target) {
        target.put(target.position(), from, at, length);
        target.limit(target.position() + length);
        return length;
    }

    private int copy(int at, int length, ByteBuffer target) {
        return length <= target.remaining() ? copied(buffer, at, length, target) : length;
    }

    private void step(boolean isBack) {
        checkRow();
        int next = isBack == isBackward ? row + 1 : row - 1;
        if (0 <= next && next < rows) {
            place(next);
        } else if (next < 0 ? isBegin : isEnd) {
            isValid = false;
        } else {
            begin();
            try {
                fill(keyAt, keyLength, isBack ? BACKWARD : 0);
                isBegin = false;
                place(0);
            } finally {
                end();
            }
        }
    }

    private void seekToEnd(boolean isLast) {
        check();
        if (handle == null) {
            place(isLast == isBackward ? 0 : rows - 1);
            return;
        }
        begin();
        try {
            blockBytes = BLOCK_BYTES_FIRST;
            fill(HEAD_BYTES, 0, AT_BOUND | (isLast ? BACKWARD : 0));
            isBegin = true;
            place(0);
        } finally {
            end();
        }
    }

    private void seek(byte[] target, boolean isBack) {
        check();
        if (handle == null) {
            place(search(target, isBack));
            return;
        }
        begin();
        try {
            blockBytes = BLOCK_BYTES_FIRST;
            if (HEAD_BYTES + target.length > block.capacity) {
                exchange(HEAD_BYTES + target.length);
            }
            // From here on the block has no rows, should what follows fail.
            rows = 0;
            isValid = false;
            buffer.put(HEAD_BYTES, target);
            fill(HEAD_BYTES, target.length, WITH_START | (isBack ? BACKWARD : 0));
            isBegin = false;
            place(0);
        } finally {
            end();
        }
    }

    /**
     * From here to {@link #end} no other thread asks for rows. Two that did would change the block under each other,
     * while the native side writes to it.
     */
    void begin() {
        if (!IS_ASKING.compareAndSet(this, false, true)) {
            throw new ConcurrentModificationException("two threads use the iterator at once");
        }
    }

    void end() {
        IS_ASKING.setRelease(this, false);
    }

    /** Makes a row of the block the current one, if the block has it. */
    private void place(int next) {
        isValid = 0 <= next && next < rows;
        if (isValid) {
            row = next;
            int at = buffer.getInt(block.capacity - 4 * (next + 1));
            keyLength = buffer.getInt(at);
            valueLength = buffer.getInt(at + 4);
            keyAt = at + 8;
        }
    }

    /** In a block that has all rows: the first one at or behind a key, or the last one at or before it. */
    private int search(byte[] target, boolean isBack) {
        int low = 0;
        int high = rows;
        while (low < high) {
            int middle = (low + high) >>> 1;
            // By key, whichever way the block goes.
            place(isBackward ? rows - 1 - middle : middle);
            int order = compare(target);
            if (isBack ? order <= 0 : order < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        int found = isBack ? low - 1 : low;
        return isBackward ? rows - 1 - found : found;
    }

    private int compare(byte[] target) {
        byte[] key = new byte[keyLength];
        buffer.get(keyAt, key);
        return java.util.Arrays.compareUnsigned(key, target);
    }

    /** Fills the block with what lies behind a key that is in the buffer. */
    private void fill(int at, int length, int way) {
        int from = at;
        if (blockBytes > block.capacity - HEAD_BYTES && block.capacity < Block.LARGE_BYTES) {
            // The next block is a larger one. The key moves along.
            byte[] key = new byte[length];
            buffer.get(at, key);
            exchange(HEAD_BYTES + Math.max(length, blockBytes));
            from = HEAD_BYTES;
            buffer.put(from, key);
        }
        isBackward = (way & BACKWARD) != 0;
        ask(from, length, way);
        long needed = buffer.getLong(16);
        if (needed != 0) {
            refill(needed, from, length, way);
        }
        blockBytes = Math.min(Block.LARGE_BYTES, 2 * blockBytes);
    }

    private void ask(int at, int length, int way) {
        rows = 0;
        isValid = false;
        Block filled = block;
        int stripe = handle.enter();
        try {
            rows = Native.fill(handle.number, filled.address, filled.capacity, at, length, way, blockBytes);
        } finally {
            handle.leave(stripe);
            Reference.reachabilityFence(filled);
        }
        isEnd = buffer.getInt(12) != 0;
    }

    /** Asks again with a buffer that has room for the next row, which is longer than a block. */
    private void refill(long needed, int at, int length, int way) {
        byte[] key = new byte[length];
        buffer.get(at, key);
        exchange((int) Math.max(needed, HEAD_BYTES + length));
        buffer.put(HEAD_BYTES, key);
        ask(HEAD_BYTES, length, way);
    }

    /** Goes on with another block, if there is memory for one; else all stays as it is. */
    private void exchange(int bytes) {
        Block next = Block.of(bytes);
        rows = 0;
        isValid = false;
        giveBack();
        block = next;
        buffer = next.buffer;
    }

    private void giveBack() {
        if (Thread.currentThread() == maker && !isShared) {
            block.giveBack();
        }
    }
}
