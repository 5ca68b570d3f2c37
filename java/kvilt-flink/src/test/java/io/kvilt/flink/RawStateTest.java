package io.kvilt.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.zip.CRC32C;
import org.junit.jupiter.api.Test;

/** The bytes of a key group: written and read, and refused when they are not what was written. */
class RawStateTest {
    private static byte[] written(int group, int rows, int valueBytes) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        RawState.Writer writer = new RawState.Writer(out);
        writer.begin(group);
        for (int i = 0; i < rows; i++) {
            writer.add(new byte[] {0, (byte) group, 0, 1, 'k', (byte) i}, new byte[valueBytes]);
        }
        writer.end();
        return out.toByteArray();
    }

    private static long rows(byte[] bytes, int group) throws IOException {
        long[] rows = new long[1];
        long told = RawState.read(new ByteArrayInputStream(bytes), group, row -> {}, batch -> rows[0] += batch.count());
        assertEquals(told, rows[0]);
        return told;
    }

    private static String refused(byte[] bytes, int group) {
        return assertThrows(IOException.class, () -> rows(bytes, group)).getMessage();
    }

    /** The bytes of one row, as they are in checkpoints that jobs have; a change of them needs a new version. */
    @Test
    void the_format_is_what_it_was() throws IOException {
        byte[] bytes = written(7, 1, 2);
        assertEquals(
                "4b76696c74466c6b" + "0001" + "0007" + "bd4a0e62"
                        + "0000000e" + "ac25d14a" + "00000004" + "00000002" + "00016b00" + "0000"
                        + "00000000" + "e42e8e34" + "0000000000000001",
                HexFormat.of().formatHex(bytes));
        assertEquals(1, rows(bytes, 7));
    }

    @Test
    void rows_fill_blocks_of_any_size() throws IOException {
        assertEquals(0, rows(written(0, 0, 0), 0));
        assertEquals(256, rows(written(300, 256, 5_000), 300));
        assertEquals(3, rows(written(32_767, 3, 1 << 20), 32_767));
    }

    @Test
    void every_flipped_bit_is_refused() throws IOException {
        byte[] bytes = written(7, 3, 5);
        for (int bit = 0; bit < bytes.length * 8; bit++) {
            int at = bit;
            byte[] damaged = bytes.clone();
            damaged[bit / 8] ^= (byte) (1 << bit % 8);
            String message = refused(damaged, 7);
            assertTrue(message.contains("key group 7"), message);
            assertTrue(message.contains("is damaged"), () -> "bit " + at + ": " + message);
            assertTrue(message.contains("another checkpoint or savepoint"), message);
        }
    }

    @Test
    void every_cut_is_refused() throws IOException {
        byte[] bytes = written(7, 200, 4_000);
        for (int length = 0; length < bytes.length; length += length < 100 ? 1 : 4_999) {
            String message = refused(Arrays.copyOf(bytes, length), 7);
            assertTrue(message.contains("key group 7 is damaged: it ends"), message);
        }
        assertTrue(refused(Arrays.copyOf(bytes, bytes.length - 1), 7).contains("it ends"));
    }

    @Test
    void blocks_and_groups_do_not_stand_in_for_each_other() throws IOException {
        assertTrue(refused(written(8, 3, 5), 7).contains("key group 8"));
        // Two blocks of equal length, exchanged.
        byte[] bytes = written(7, 128, 4_096);
        int head = 16;
        int block = (bytes.length - head - 16) / 2;
        byte[] exchanged = bytes.clone();
        System.arraycopy(bytes, head, exchanged, head + block, block);
        System.arraycopy(bytes, head + block, exchanged, head, block);
        assertEquals(128, rows(bytes, 7));
        assertTrue(refused(exchanged, 7).contains("block 0"), refused(exchanged, 7));
    }

    @Test
    void what_another_operator_wrote_is_told_apart() throws IOException {
        assertTrue(refused("anything of at least 16 bytes".getBytes(StandardCharsets.UTF_8), 7).contains("uid"));
        byte[] newer = written(7, 1, 1);
        newer[9] = 2;
        CRC32C checksum = new CRC32C();
        checksum.update(newer, 0, 12);
        ByteBuffer.wrap(newer).putInt(12, (int) checksum.getValue());
        assertTrue(refused(newer, 7).contains("has version 2"), refused(newer, 7));
    }
}
