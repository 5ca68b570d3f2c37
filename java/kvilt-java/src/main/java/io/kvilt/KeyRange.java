package io.kvilt;

import java.util.Arrays;
import java.util.HexFormat;

/**
 * A range of keys, in the order of their bytes, which are compared as numbers from 0 to 255. Immutable.
 *
 * <p>A range whose start lies behind its end is empty, and no error.
 */
public final class KeyRange {
    private static final KeyRange ALL = new KeyRange(new byte[0], null);

    /** The first key that may be in it. */
    final byte[] from;

    /** The first key behind it; null for none. */
    final byte[] to;

    private KeyRange(byte[] from, byte[] to) {
        this.from = from;
        this.to = to;
    }

    /**
     * All keys.
     *
     * @return the range of all keys
     */
    public static KeyRange all() {
        return ALL;
    }

    /**
     * The keys from {@code from}, included, to {@code to}, excluded.
     *
     * @param from the first key
     * @param to the first key that is not in the range any more
     * @return the range
     */
    public static KeyRange of(byte[] from, byte[] to) {
        return new KeyRange(from.clone(), to.clone());
    }

    /**
     * The keys from {@code from} to {@code to}, each included or not.
     *
     * @param from where the range begins
     * @param isFromIncluded whether {@code from} is in it
     * @param to where the range ends
     * @param isToIncluded whether {@code to} is in it
     * @return the range
     */
    public static KeyRange of(byte[] from, boolean isFromIncluded, byte[] to, boolean isToIncluded) {
        return new KeyRange(
                isFromIncluded ? from.clone() : successor(from), isToIncluded ? successor(to) : to.clone());
    }

    /**
     * The keys from {@code from} on, included.
     *
     * @param from the first key
     * @return the range
     */
    public static KeyRange atLeast(byte[] from) {
        return new KeyRange(from.clone(), null);
    }

    /**
     * The keys behind {@code from}, which is excluded.
     *
     * @param from the last key before the range
     * @return the range
     */
    public static KeyRange greaterThan(byte[] from) {
        return new KeyRange(successor(from), null);
    }

    /**
     * The keys before {@code to}, which is excluded.
     *
     * @param to the first key that is not in the range any more
     * @return the range
     */
    public static KeyRange lessThan(byte[] to) {
        return new KeyRange(ALL.from, to.clone());
    }

    /**
     * The keys up to {@code to}, included.
     *
     * @param to the last key
     * @return the range
     */
    public static KeyRange atMost(byte[] to) {
        return new KeyRange(ALL.from, successor(to));
    }

    /**
     * The keys that begin with {@code prefix}.
     *
     * @param prefix the first bytes of each key; none means all keys
     * @return the range
     */
    public static KeyRange prefix(byte[] prefix) {
        int end = prefix.length;
        while (end > 0 && prefix[end - 1] == (byte) 0xff) {
            end--;
        }
        if (end == 0) {
            return new KeyRange(prefix.clone(), null);
        }
        byte[] to = Arrays.copyOf(prefix, end);
        to[end - 1]++;
        return new KeyRange(prefix.clone(), to);
    }

    /**
     * The same range of keys that all begin with {@code prefix}, where this one speaks of what comes behind it: for
     * programs that keep several sorted maps in one store, each below a prefix of its own.
     *
     * @param prefix the first bytes of each key
     * @return the range of {@code prefix} followed by each key of this range
     */
    public KeyRange under(byte[] prefix) {
        return new KeyRange(joined(prefix, from), to == null ? prefix(prefix).to : joined(prefix, to));
    }

    /**
     * Whether a key is in the range.
     *
     * @param key the key
     * @return whether it is
     */
    public boolean contains(byte[] key) {
        return Arrays.compareUnsigned(key, from) >= 0 && (to == null || Arrays.compareUnsigned(key, to) < 0);
    }

    /** The key right behind: no key lies between. */
    private static byte[] successor(byte[] key) {
        return Arrays.copyOf(key, key.length + 1);
    }

    private static byte[] joined(byte[] first, byte[] second) {
        byte[] joined = Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, joined, first.length, second.length);
        return joined;
    }

    @Override
    public String toString() {
        HexFormat hex = HexFormat.of();
        return "[" + hex.formatHex(from) + ", " + (to == null ? "end" : hex.formatHex(to)) + ")";
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof KeyRange range && Arrays.equals(from, range.from) && Arrays.equals(to, range.to);
    }

    @Override
    public int hashCode() {
        return 31 * Arrays.hashCode(from) + Arrays.hashCode(to);
    }
}
