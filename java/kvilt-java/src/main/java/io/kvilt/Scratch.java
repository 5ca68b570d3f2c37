package io.kvilt;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Memory outside the heap in which a thread hands keys and values over to the native side, and gets values back.
 *
 * <p>Copying to and from it costs less than asking the virtual machine for an array's bytes on the other side, since
 * that changes the thread's state twice for each array. A thread has one, which grows up to {@link #BYTES_MAX};
 * whatever is longer goes another way.
 */
final class Scratch {
    /** So much a thread keeps at most. */
    static final int BYTES_MAX = 160 << 10;

    private static final int BYTES_FIRST = 4 << 10;
    private static final ThreadLocal<Scratch> MINE = ThreadLocal.withInitial(Scratch::new);

    ByteBuffer buffer;
    long address;
    int capacity;

    private Scratch() {
        grow(BYTES_FIRST);
    }

    /** This thread's, with room for {@code bytes}, which are at most {@link #BYTES_MAX}. */
    static Scratch of(int bytes) {
        Scratch mine = MINE.get();
        if (bytes > mine.capacity) {
            mine.grow(bytes);
        }
        return mine;
    }

    private void grow(int bytes) {
        int grown = Math.min(BYTES_MAX, Math.max(BYTES_FIRST, Integer.highestOneBit(bytes - 1) * 2));
        // There may be no memory for it. Then all three fields stay as they are.
        ByteBuffer next = ByteBuffer.allocateDirect(grown).order(ByteOrder.LITTLE_ENDIAN);
        long begin = Native.address(next);
        capacity = grown;
        buffer = next;
        address = begin;
    }

    /** Bytes of a result that lies behind {@code at}. */
    byte[] copy(int at, int bytes) {
        byte[] copy = new byte[bytes];
        buffer.get(at, copy);
        return copy;
    }

    /** Puts bytes of {@code source}, whose position stays, at {@code at}. */
    void put(int at, ByteBuffer source, int from, int length) {
        buffer.put(at, source, from, length);
    }
}
