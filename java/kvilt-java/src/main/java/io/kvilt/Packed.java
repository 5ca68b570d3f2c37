package io.kvilt;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Several byte strings as one: each is its length in four bytes, little-endian, and its bytes; -1 stands for none. */
final class Packed {
    static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    byte[] bytes;
    int length;

    Packed(int capacity) {
        bytes = new byte[capacity];
    }

    /** A list of texts. */
    static byte[] of(List<String> items) {
        Packed packed = new Packed(64);
        for (String item : items) {
            packed.add(item.getBytes(StandardCharsets.UTF_8));
        }
        return Arrays.copyOf(packed.bytes, packed.length);
    }

    void add(byte[] item) {
        int at = reserve(4L + item.length);
        INT.set(bytes, at, item.length);
        System.arraycopy(item, 0, bytes, at + 4, item.length);
    }

    /** Makes room for more bytes, and returns where they begin. */
    int reserve(long more) {
        int at = length;
        long needed = at + more;
        if (needed > bytes.length) {
            if (needed > Integer.MAX_VALUE - 16) {
                throw new KviltException(
                        KviltException.Kind.LIMIT_REACHED,
                        "all of it takes " + needed + " bytes, more than an array may have; do it in several steps");
            }
            long doubled = Math.min(Math.max(needed, 2L * bytes.length), Integer.MAX_VALUE - 16);
            bytes = Arrays.copyOf(bytes, (int) doubled);
        }
        length = (int) needed;
        return at;
    }

    static List<byte[]> unpack(byte[] packed) {
        List<byte[]> items = new ArrayList<>();
        for (int at = 0; at < packed.length; ) {
            int length = (int) INT.get(packed, at);
            at += 4;
            items.add(length < 0 ? null : Arrays.copyOfRange(packed, at, at + length));
            at += Math.max(0, length);
        }
        return items;
    }

    static List<String> texts(byte[] packed) {
        List<String> texts = new ArrayList<>();
        for (byte[] item : unpack(packed)) {
            texts.add(new String(item, StandardCharsets.UTF_8));
        }
        return texts;
    }
}
