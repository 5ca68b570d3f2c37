package io.kvilt.flink;

import io.kvilt.WriteBatch;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.function.Consumer;
import java.util.zip.CRC32C;

/**
 * The bytes of a key group in Flink's raw keyed state: a head, blocks of rows, and an end.
 *
 * <pre>
 * head   | "KviltFlk" (8) | version (2) | key group (2) | checksum (4) |
 * block  | bytes of rows (4), not 0 | checksum (4) | rows ... |
 * row    | bytes of key (4) | bytes of value (4) | key ... | value ... |
 * end    | 0 (4) | checksum (4) | number of rows (8) |
 * </pre>
 *
 * <p>Numbers are big-endian. The key of a row is the engine's without its key group. Checksums are CRC-32C: that of the
 * head covers the rest of it; that of a block its key group, its number (from 0), its length and its rows, so no block
 * can stand in for another one; that of the end its key group, the number of blocks, the 0, and the number of rows.
 *
 * <p>Each later version has the same head, so that its checksum can be tested before the version is believed.
 */
final class RawState {
    /** {@code KviltFlk}. */
    static final long MAGIC = 0x4b76_696c_7446_6c6bL;

    static final int VERSION = 1;

    private static final int HEAD_BYTES = 16;
    private static final int ROW_BYTES = 8;

    /**
     * A block is written when it has this many, so it exceeds them by one row at most. As a row has 10 bytes at least,
     * its rows fit into one batch, which may have 32,768 operations and 72 MiB.
     */
    private static final int BLOCK_BYTES = 256 << 10;

    /** More than a row of the greatest length takes; a greater number is damage, and nothing is allocated for it. */
    private static final int BLOCK_BYTES_MAX = 72 << 20;

    private RawState() {}

    /** Writes key groups, one after another. One thread uses it. */
    static final class Writer {
        private final OutputStream out;
        private ByteBuffer block = ByteBuffer.allocate(BLOCK_BYTES + (64 << 10));
        private int group;
        private int blocks;
        private long rows;

        Writer(OutputStream out) {
            this.out = out;
        }

        void begin(int group) throws IOException {
            this.group = group;
            blocks = 0;
            rows = 0;
            ByteBuffer head = ByteBuffer.allocate(HEAD_BYTES);
            head.putLong(MAGIC).putShort((short) VERSION).putShort((short) group);
            head.putInt(headChecksum(head));
            out.write(head.array());
        }

        /** Adds a row by its engine key, whose key group is left out. */
        void add(byte[] row, byte[] value) throws IOException {
            int key = row.length - Prefixes.GROUP_BYTES;
            reserve(ROW_BYTES + key + value.length);
            block.putInt(key).putInt(value.length).put(row, Prefixes.GROUP_BYTES, key).put(value);
            rows++;
            if (block.position() >= BLOCK_BYTES) {
                flush();
            }
        }

        void end() throws IOException {
            flush();
            ByteBuffer end = ByteBuffer.allocate(16);
            end.putInt(0).putInt(endChecksum(group, blocks, rows)).putLong(rows);
            out.write(end.array());
        }

        private void flush() throws IOException {
            int bytes = block.position();
            if (bytes == 0) {
                return;
            }
            ByteBuffer head = ByteBuffer.allocate(8);
            head.putInt(bytes).putInt(checksum(group, blocks, bytes, block.array(), bytes));
            out.write(head.array());
            out.write(block.array(), 0, bytes);
            block.clear();
            blocks++;
        }

        private void reserve(int bytes) {
            if (block.remaining() < bytes) {
                block = ByteBuffer.allocate(block.position() + bytes).put(block.flip());
            }
        }
    }

    /** Checks the key of a row, its key group before it. */
    interface KeyCheck {
        void check(byte[] row) throws IOException;
    }

    /**
     * Reads a key group from a stream that stands at its head; what comes behind its end may have been read, too.
     *
     * @param keys checks each row's key behind the checksum of its block
     * @param target gets the rows of each block
     * @return the number of rows
     * @throws IOException if they are not what a {@link Writer} wrote; says which key group, and what to do
     */
    static long read(InputStream stream, int group, KeyCheck keys, Consumer<WriteBatch> target)
            throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(stream, 64 << 10));
        int blocks = 0;
        try {
            head(in, group);
            long rows = 0;
            for (int bytes = in.readInt(); bytes != 0; bytes = in.readInt()) {
                rows += block(in, group, blocks, bytes, keys, target);
                blocks++;
            }
            int checksum = in.readInt();
            long expected = in.readLong();
            if (checksum != endChecksum(group, blocks, expected)) {
                throw damage(group, "the checksum of its end is wrong");
            }
            if (rows != expected) {
                throw damage(group, "it has " + rows + " rows and says " + expected);
            }
            return rows;
        } catch (EOFException e) {
            IOException damage = damage(group, "it ends within or behind block " + blocks);
            damage.initCause(e);
            throw damage;
        }
    }

    private static void head(DataInputStream in, int group) throws IOException {
        byte[] head = new byte[HEAD_BYTES];
        in.readFully(head);
        ByteBuffer fields = ByteBuffer.wrap(head);
        long magic = fields.getLong();
        if (magic != MAGIC) {
            throw new IOException(String.format(
                    "the raw keyed state of key group %d does not begin as Kvilt's, but with %016x: it is damaged, or"
                            + " another operator wrote it under this uid. Try another checkpoint or savepoint first."
                            + " If another operator wrote it, give KviltOperator a uid of its own, and start with"
                            + " allowNonRestoredState if that state is not needed any more",
                    group, magic));
        }
        int version = fields.getShort() & 0xffff;
        int writtenGroup = fields.getShort() & 0xffff;
        if (fields.getInt() != headChecksum(fields)) {
            throw damage(group, "the checksum of its head is wrong");
        }
        if (version != VERSION) {
            throw new IOException("the raw keyed state of key group " + group + " has version " + version
                    + ", and this Kvilt reads " + VERSION + ": use the kvilt-flink that wrote it, or a newer one");
        }
        if (writtenGroup != group) {
            throw damage(group, "it was written as that of key group " + writtenGroup);
        }
    }

    /** Reads a block, and gives its rows to the target. */
    private static long block(
            DataInputStream in, int group, int number, int bytes, KeyCheck keys, Consumer<WriteBatch> target)
            throws IOException {
        if (bytes < 0 || bytes > BLOCK_BYTES_MAX) {
            throw damage(group, "block " + number + " says that it has " + bytes + " bytes");
        }
        int checksum = in.readInt();
        byte[] block = new byte[bytes];
        in.readFully(block);
        if (checksum != checksum(group, number, bytes, block, bytes)) {
            throw damage(group, "the checksum of block " + number + " is wrong");
        }
        WriteBatch batch = new WriteBatch(bytes + bytes / 2);
        ByteBuffer rows = ByteBuffer.wrap(block);
        while (rows.hasRemaining()) {
            int keyBytes = rows.getInt();
            byte[] value = new byte[rows.getInt()];
            byte[] key = new byte[Prefixes.GROUP_BYTES + keyBytes];
            key[0] = (byte) (group >> 8);
            key[1] = (byte) group;
            rows.get(key, Prefixes.GROUP_BYTES, keyBytes).get(value);
            keys.check(key);
            batch.put(key, value);
        }
        target.accept(batch);
        return batch.count();
    }

    private static int headChecksum(ByteBuffer head) {
        CRC32C checksum = new CRC32C();
        checksum.update(head.array(), 0, HEAD_BYTES - Integer.BYTES);
        return (int) checksum.getValue();
    }

    /** Of a block; or of the end, whose length is 0 and whose content is the number of rows. */
    private static int checksum(int group, int number, int length, byte[] content, int bytes) {
        CRC32C checksum = new CRC32C();
        checksum.update(ByteBuffer.allocate(12)
                .putInt(group)
                .putInt(number)
                .putInt(length)
                .flip());
        checksum.update(content, 0, bytes);
        return (int) checksum.getValue();
    }

    private static int endChecksum(int group, int blocks, long rows) {
        return checksum(group, blocks, 0, ByteBuffer.allocate(Long.BYTES).putLong(rows).array(), Long.BYTES);
    }

    private static IOException damage(int group, String what) {
        return new IOException("the raw keyed state of key group " + group + " is damaged: " + what
                + "; restore the job from another checkpoint or savepoint");
    }
}
