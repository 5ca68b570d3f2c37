package io.kvilt;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The methods of the native library; crate {@code kvilt-jni} says what each does, in the same order.
 *
 * <p>Whoever calls one keeps to the four rules in {@code border.rs}: a number that stands for something is used only
 * between {@link Handle#enter} and {@link Handle#leave}, and an address only while its buffer is this thread's.
 */
final class Native {
    /** Which methods there are; the library says the same number, or is another build's. */
    static final int VERSION = 1;

    private static boolean isLoaded;

    private Native() {}

    /**
     * Asked before the first call of all; whoever makes another one has what that call gave. What fails now may succeed
     * later, as when the disk was full that the library is copied to.
     */
    static synchronized void ensureLoaded() {
        if (!isLoaded) {
            NativeLibrary.load();
            isLoaded = true;
        }
        NativeLibrary.ensureVersion(version());
    }

    /** Throws what the native side tells: the name of a kind, a line break, and a text. */
    static void raise(byte[] message) {
        String told = new String(message, StandardCharsets.UTF_8);
        int end = told.indexOf('\n');
        String kind = told.substring(0, end);
        String text = told.substring(end + 1);
        if (kind.equals("closed")) {
            throw new IllegalStateException(text);
        }
        throw new KviltException(KviltException.Kind.of(kind), text);
    }

    static native int version();

    static native void panic(byte[] text);

    static native long address(ByteBuffer buffer);

    static native long openEnv(long budget);

    static native long envBudget(long env);

    static native long envUsed(long env);

    static native void freeEnv(long env);

    static native long open(byte[] path, byte[] settings, long env);

    static native void close(long view);

    static native void freeView(long view);

    static native byte[] engine(long view);

    static native long keyspace(long view, byte[] name);

    static native byte[] keyspaces(long view);

    static native boolean dropKeyspace(long view, byte[] name);

    static native long snapshot(long view);

    static native long snapshotOf(long moment, long keyspace);

    static native void sync(long view);

    static native void checkpoint(long view, byte[] path);

    static native byte[] stats(long view);

    static native byte[] describe(long view, boolean isDeep);

    static native byte[] check(long view);

    static native long get(long view, long memory, int capacity, int key);

    static native long getDirect(
            long view, ByteBuffer key, int keyAt, int keyLen, ByteBuffer value, int valueAt, int valueLen);

    static native byte[] getLarge(long view, byte[] key);

    static native byte[] getMany(long view, byte[] keys, int len);

    static native void put(long view, long memory, int key, int value);

    static native void putDirect(
            long view, ByteBuffer key, int keyAt, int keyLen, ByteBuffer value, int valueAt, int valueLen);

    static native void putLarge(long view, byte[] key, byte[] value);

    static native void delete(long view, long memory, int key);

    static native void deleteLarge(long view, byte[] key);

    static native void deleteRange(long view, byte[] from, byte[] to);

    static native byte[] compareAndSwap(long view, byte[] key, byte[] expected, byte[] update);

    static native void write(long view, byte[] operations, int len, long[] views);

    static native int scan(
            long view, long memory, int capacity, int lower, int upper, int way, int bytes, int rows);

    static native int fill(long scan, long memory, int capacity, int keyAt, int key, int way, int bytes);

    static native void freeScan(long scan);
}
