package io.kvilt.kafka;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Comparator;
import org.apache.kafka.common.utils.Bytes;

/**
 * Keys of rows of window and session stores: the number of a time segment in 8 bytes, then what Kafka's changelog has
 * as the key, which is the record's key and a tail of fixed length. All numbers are big-endian.
 *
 * <pre>
 * window    | segment | key ... | begin of the window | number among equal ones (4 bytes) |
 * session   | segment | key ... | end of the session  | begin of the session              |
 * </pre>
 *
 * <p>As keys may be of any length, a row of a longer key can lie between two rows of a shorter one that begins it:
 * whoever scans looks at each key.
 */
final class Keys {
    static final byte[] NONE = new byte[0];

    /** As Kafka's own stores say it, for those who search for it. */
    static final String WRONG_RANGE = "Returning empty iterator for fetch with invalid key range: from > to. "
            + "This may be due to range arguments set in the wrong order, "
            + "or serdes that don't preserve ordering when lexicographically comparing the serialized bytes. "
            + "Note that the built-in numerical serdes do not follow this for negative numbers";

    /** Of the segment before, and of the timestamp that decides about it. */
    static final int LONG = Long.BYTES;

    static final int WINDOW_TAIL = LONG + Integer.BYTES;
    static final int SESSION_TAIL = LONG + LONG;

    /** Longer keys get a bound that is right, and as wide as the segment. */
    private static final int BOUND_BYTES_MAX = 1 << 10;

    /** Windows by their begin, and then by key. */
    static final Comparator<byte[]> WINDOWS_BY_TIME =
            Comparator.<byte[]>comparingLong(row -> time(row, WINDOW_TAIL)).thenComparing(Arrays::compareUnsigned);

    /** Sessions by their end, then by their begin, and then by key. */
    static final Comparator<byte[]> SESSIONS_BY_TIME =
            Comparator.<byte[]>comparingLong(row -> time(row, SESSION_TAIL))
                    .thenComparingLong(Keys::sessionBegin)
                    .thenComparing(Arrays::compareUnsigned);

    private Keys() {}

    static byte[] window(long segment, byte[] key, long begin, int number) {
        return ByteBuffer.allocate(LONG + key.length + WINDOW_TAIL)
                .putLong(segment)
                .put(key)
                .putLong(begin)
                .putInt(number)
                .array();
    }

    static byte[] session(long segment, byte[] key, long begin, long end) {
        return ByteBuffer.allocate(LONG + key.length + SESSION_TAIL)
                .putLong(segment)
                .put(key)
                .putLong(end)
                .putLong(begin)
                .array();
    }

    /** At or before the first row of a key that has this time or a later one. */
    static byte[] first(long segment, byte[] key, long time) {
        return ByteBuffer.allocate(LONG + key.length + LONG)
                .putLong(segment)
                .put(key)
                .putLong(time)
                .array();
    }

    /** The row of a changelog's key. */
    static byte[] row(long segment, byte[] changelogKey) {
        return ByteBuffer.allocate(LONG + changelogKey.length)
                .putLong(segment)
                .put(changelogKey)
                .array();
    }

    /** The first key of a segment. */
    static byte[] segment(long segment) {
        return ByteBuffer.allocate(LONG).putLong(segment).array();
    }

    static long segmentOf(byte[] row) {
        return ByteBuffer.wrap(row).getLong();
    }

    static Bytes key(byte[] row, int tail) {
        return Bytes.wrap(Arrays.copyOfRange(row, LONG, row.length - tail));
    }

    /** The begin of a window, or the end of a session. */
    static long time(byte[] row, int tail) {
        return ByteBuffer.wrap(row).getLong(row.length - tail);
    }

    /** The begin of a session. */
    static long sessionBegin(byte[] row) {
        return ByteBuffer.wrap(row).getLong(row.length - LONG);
    }

    /** Whether the row is one of this key. */
    static boolean isOf(byte[] row, byte[] key, int tail) {
        return row.length == LONG + key.length + tail && Arrays.equals(row, LONG, LONG + key.length, key, 0, key.length);
    }

    /** The first key behind all that begin with a prefix; null if there is none. */
    static byte[] behindPrefix(byte[] prefix) {
        int end = prefix.length;
        while (end > 0 && prefix[end - 1] == (byte) 0xff) {
            end--;
        }
        if (end == 0) {
            return null;
        }
        byte[] behind = Arrays.copyOf(prefix, end);
        behind[end - 1]++;
        return behind;
    }

    /**
     * A key behind all rows of a segment whose key is {@code to} or less, and whose timestamp is at most {@code time}.
     *
     * <p>A key that begins {@code to} may have rows behind all those of {@code to}, where its timestamp is greater than
     * what {@code to} has in that place. So the bound is the greatest of those of all such keys.
     */
    static byte[] behind(long segment, byte[] to, long time, int tail) {
        if (to == null || to.length > BOUND_BYTES_MAX) {
            return segment(segment + 1);
        }
        byte[] suffix = new byte[tail + 1];
        Arrays.fill(suffix, (byte) 0xff);
        ByteBuffer.wrap(suffix).putLong(time);
        byte[] greatest = bound(segment, to, to.length, suffix);
        for (int length = 0; length < to.length; length++) {
            if ((to[length] & 0xff) <= (suffix[0] & 0xff)) {
                byte[] other = bound(segment, to, length, suffix);
                if (Arrays.compareUnsigned(other, greatest) > 0) {
                    greatest = other;
                }
            }
        }
        return greatest;
    }

    private static byte[] bound(long segment, byte[] key, int length, byte[] suffix) {
        return ByteBuffer.allocate(LONG + length + suffix.length)
                .putLong(segment)
                .put(key, 0, length)
                .put(suffix)
                .array();
    }
}
