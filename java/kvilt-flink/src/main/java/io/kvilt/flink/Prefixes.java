package io.kvilt.flink;

import java.io.IOException;
import java.util.Arrays;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.api.java.typeutils.runtime.TupleSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;

/**
 * Makes what engine keys begin with. One thread uses it.
 *
 * <pre>
 * | key group (2 bytes) | length of the stream's key (2 bytes) | stream's key ... | row's key ... |
 * </pre>
 *
 * <p>Numbers are big-endian, so rows of a key group lie side by side, in the order of key groups. No prefix begins
 * another one, so the rows of a key are exactly those that begin with its prefix.
 *
 * <p>To Flink two keys are one if they are equal, and here if their bytes are. So a key whose bytes are others when it
 * was read from them and is written again is refused, as a set's may be, which has no order. A key that is restored
 * must be written as it was.
 */
final class Prefixes {
    static final int GROUP_BYTES = Short.BYTES;

    private static final int HEAD_BYTES = GROUP_BYTES + Short.BYTES;
    private static final int KEY_BYTES_MAX = 0xffff;

    private final int groupsOfAll;
    private final TypeSerializer<Object> serializer;

    /** Whether it is a type such as a number, a text or a tuple of them, which has one way to be written. */
    private final boolean isPlain;

    private final DataOutputSerializer buffer = new DataOutputSerializer(64);

    /** Of the row that was restored last; empty before the first. */
    private byte[] restored = new byte[0];

    Prefixes(int groupsOfAll, TypeSerializer<Object> serializer) {
        this.groupsOfAll = groupsOfAll;
        this.serializer = serializer;
        this.isPlain = isPlain(serializer);
    }

    private static boolean isPlain(TypeSerializer<?> serializer) {
        if (serializer.getClass() == TupleSerializer.class) {
            return Arrays.stream(((TupleSerializer<?>) serializer).getFieldSerializers()).allMatch(Prefixes::isPlain);
        }
        return serializer instanceof TypeSerializerSingleton;
    }

    /** The prefix of the rows of a key, of which Flink has checked that its key group is one of this subtask's. */
    byte[] of(Object key) throws IOException {
        byte[] prefix = write(key);
        if (!isPlain && !Arrays.equals(prefix, write(read(prefix)))) {
            throw new IllegalArgumentException("the stream's key " + key + " has another hash code, or is serialized to"
                    + " other bytes, when it was read from its bytes; so equal keys may have rows of their own: use a key"
                    + " whose parts have an order, such as texts, numbers, and tuples or POJOs of them, and no set or map");
        }
        return prefix;
    }

    /**
     * Checks that the key of the stream in a row that is restored would be written as it is, and belongs to its key
     * group. Rows of a key come one after another, so each key is looked at once.
     *
     * @throws IOException if it is written in another way now
     */
    void checkRestored(byte[] row) throws IOException {
        int same = Arrays.mismatch(row, restored);
        if (restored.length > 0 && (same == -1 || same == restored.length)) {
            return;
        }
        int length = (row[GROUP_BYTES] & 0xff) << 8 | row[GROUP_BYTES + 1] & 0xff;
        byte[] prefix = Arrays.copyOf(row, HEAD_BYTES + length);
        Throwable cause = null;
        try {
            if (Arrays.equals(prefix, write(read(prefix)))) {
                restored = prefix;
                return;
            }
        } catch (IOException | RuntimeException e) {
            cause = e;
        }
        throw new IOException(
                "the raw keyed state of key group " + groupOf(row) + " has a key of the stream that is not written as it"
                        + " was: let the key's type, its hash code and what is registered with Kryo be what they were",
                cause);
    }

    private Object read(byte[] prefix) throws IOException {
        return serializer.deserialize(new DataInputDeserializer(prefix, HEAD_BYTES, prefix.length - HEAD_BYTES));
    }

    private byte[] write(Object key) throws IOException {
        int group = KeyGroupRangeAssignment.assignToKeyGroup(key, groupsOfAll);
        buffer.clear();
        buffer.writeShort(group);
        buffer.writeShort(0);
        serializer.serialize(key, buffer);
        byte[] prefix = buffer.getCopyOfBuffer();
        int length = prefix.length - HEAD_BYTES;
        if (length > KEY_BYTES_MAX) {
            throw new IllegalArgumentException("the stream's key has " + length + " bytes when it is serialized, and "
                    + KEY_BYTES_MAX + " is the most");
        }
        prefix[GROUP_BYTES] = (byte) (length >> 8);
        prefix[GROUP_BYTES + 1] = (byte) length;
        return prefix;
    }

    /** The engine key of a row. */
    static byte[] row(byte[] prefix, byte[] key) {
        byte[] row = Arrays.copyOf(prefix, prefix.length + key.length);
        System.arraycopy(key, 0, row, prefix.length, key.length);
        return row;
    }

    static int groupOf(byte[] row) {
        return (row[0] & 0xff) << 8 | row[1] & 0xff;
    }
}
