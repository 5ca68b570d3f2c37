package io.kvilt.kafka;

import io.kvilt.kafka.Storage.Range;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Keys of rows of versioned stores. All numbers are big-endian.
 *
 * <pre>
 * version    | 1 | key, escaped | 0 0 | timestamp, so that the newest comes first (8 bytes) |
 * visit      | 0 | segment of time (8 bytes) | key, escaped | 0 0 |
 * </pre>
 *
 * <p>A byte 0 of a key is 0 255, so no key begins another, and keys keep their order. A version's value is a byte and
 * the bytes of the value, and nothing for a version that says that the key was deleted. A visit has no value: it says
 * that a version of the key begins in this segment, and so ends the one before it.
 */
final class VersionKeys {
    /** A value is there. */
    private static final byte VALUE = 1;

    private static final byte VISIT = 0;
    private static final byte VERSION = 1;
    private static final int VISIT_HEAD = 1 + Long.BYTES;

    private VersionKeys() {}

    /** The key so that none begins another, with its end. */
    static byte[] escaped(byte[] key) {
        int zeros = 0;
        for (byte b : key) {
            zeros += b == 0 ? 1 : 0;
        }
        byte[] escaped = new byte[key.length + zeros + 2];
        int at = 0;
        for (byte b : key) {
            escaped[at++] = b;
            if (b == 0) {
                escaped[at++] = (byte) 0xff;
            }
        }
        return escaped;
    }

    static byte[] version(byte[] escaped, long timestamp) {
        return ByteBuffer.allocate(1 + escaped.length + Long.BYTES)
                .put(VERSION)
                .put(escaped)
                .putLong(newestFirst(timestamp))
                .array();
    }

    static long timestamp(byte[] version) {
        return newestFirst(ByteBuffer.wrap(version).getLong(version.length - Long.BYTES));
    }

    /** Its own inverse: greater timestamps become less, as bytes without a sign. */
    private static long newestFirst(long timestamp) {
        return timestamp ^ Long.MAX_VALUE;
    }

    /** All versions of a key. */
    static Range versions(byte[] escaped) {
        return from(escaped, Long.MAX_VALUE);
    }

    /** The versions of a key that begin at this time or before. */
    static Range from(byte[] escaped, long timestamp) {
        return new Range(version(escaped, timestamp), behind(version(escaped, Long.MIN_VALUE)));
    }

    /** The versions of a key that begin after this time. */
    static Range after(byte[] escaped, long timestamp) {
        return new Range(version(escaped, Long.MAX_VALUE), version(escaped, timestamp));
    }

    /** The versions of a key that begin at this time or after. */
    static Range until(byte[] escaped, long timestamp) {
        return new Range(version(escaped, Long.MAX_VALUE), behind(version(escaped, timestamp)));
    }

    /** The first row that may come behind this one. */
    static byte[] behind(byte[] row) {
        return Arrays.copyOf(row, row.length + 1);
    }

    static byte[] visit(long segment, byte[] escaped) {
        return ByteBuffer.allocate(VISIT_HEAD + escaped.length)
                .put(VISIT)
                .putLong(segment ^ Long.MIN_VALUE)
                .put(escaped)
                .array();
    }

    /** The visits from a row on, of segments before this one. */
    static Range visits(byte[] from, long segment) {
        return new Range(from, visit(segment, Keys.NONE));
    }

    /** The key of a visit, escaped. */
    static byte[] keyOf(byte[] visit) {
        return Arrays.copyOfRange(visit, VISIT_HEAD, visit.length);
    }

    /** What a version's row has for a value, or for none. */
    static byte[] wrapped(byte[] value) {
        return value == null
                ? Keys.NONE
                : ByteBuffer.allocate(1 + value.length).put(VALUE).put(value).array();
    }

    static boolean isDeletion(byte[] wrapped) {
        return wrapped.length == 0;
    }

    static byte[] value(byte[] wrapped) {
        return Arrays.copyOfRange(wrapped, 1, wrapped.length);
    }
}
