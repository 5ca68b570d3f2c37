package io.kvilt.flink;

import java.io.IOException;
import java.util.Arrays;
import org.apache.flink.api.common.typeutils.TypeSerializer;
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
 */
final class Prefixes {
    static final int GROUP_BYTES = Short.BYTES;

    private static final int HEAD_BYTES = GROUP_BYTES + Short.BYTES;
    private static final int KEY_BYTES_MAX = 0xffff;

    private final int groupsOfAll;
    private final TypeSerializer<Object> serializer;
    private final DataOutputSerializer buffer = new DataOutputSerializer(64);

    Prefixes(int groupsOfAll, TypeSerializer<Object> serializer) {
        this.groupsOfAll = groupsOfAll;
        this.serializer = serializer;
    }

    /** The prefix of the rows of a key, of which Flink has checked that its key group is one of this subtask's. */
    byte[] of(Object key) throws IOException {
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
