package io.kvilt.kafka;

import io.kvilt.KeyRange;
import io.kvilt.Keyspace;
import io.kvilt.Kvilt;
import io.kvilt.KviltIterator;
import io.kvilt.WriteBatch;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.internals.PositionSerde;

/**
 * What a store keeps beside its rows, in a keyspace of its own: of which kind they are, how far changelogs, inputs and
 * time have come at the last commit, and whether rows were written since. Used as {@link Storage} is.
 */
final class Ledger {
    private static final String KEYSPACE = "kafka";
    private static final byte[] KIND = text("kind");
    private static final byte[] POSITION = text("position");
    private static final byte[] TIME = text("time");
    private static final byte[] MARK = text("uncommitted");
    private static final String OFFSET = "offset/";

    private final Keyspace own;

    Ledger(Kvilt db) {
        own = db.keyspace(KEYSPACE);
    }

    /** What the rows are; null if nobody has said so. */
    String kind() {
        byte[] kind = own.get(KIND);
        return kind == null ? null : new String(kind, StandardCharsets.UTF_8);
    }

    void setKind(String kind) {
        own.put(KIND, text(kind));
    }

    /** The stream time of the last commit, or -1. */
    long time() {
        byte[] time = own.get(TIME);
        return time == null ? -1 : ByteBuffer.wrap(time).getLong();
    }

    /** Adds the position of the last commit to another. */
    void mergeInto(Position position) {
        byte[] known = own.get(POSITION);
        if (known != null) {
            position.merge(PositionSerde.deserialize(ByteBuffer.wrap(known)));
        }
    }

    /** Whether rows were written that were not committed. */
    boolean isMarked() {
        return own.get(MARK) != null;
    }

    void mark() {
        own.put(MARK, MARK);
    }

    void unmark() {
        own.delete(MARK);
    }

    void addMark(WriteBatch batch) {
        batch.put(own, MARK, MARK);
    }

    void removeMark(WriteBatch batch) {
        batch.delete(own, MARK);
    }

    void add(WriteBatch batch, Position position, long streamTime) {
        ByteBuffer bytes = PositionSerde.serialize(position);
        bytes.rewind();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        batch.put(own, POSITION, copy);
        if (streamTime >= 0) {
            batch.put(own, TIME, bytes(streamTime));
        }
    }

    /** The offset of the last commit, or null. */
    Long offset(TopicPartition partition) {
        byte[] offset = own.get(text(OFFSET + partition));
        return offset == null ? null : ByteBuffer.wrap(offset).getLong();
    }

    /** By partition; a null one is forgotten, no partitions at all forget all of them, and null changes none. */
    void add(WriteBatch batch, Map<TopicPartition, Long> offsets) {
        if (offsets == null) {
            return;
        }
        if (offsets.isEmpty()) {
            try (KviltIterator known = own.scan(KeyRange.prefix(text(OFFSET)))) {
                known.forEachRemaining((key, value) -> batch.delete(own, key));
            }
        }
        offsets.forEach((partition, offset) -> {
            byte[] key = text(OFFSET + partition);
            if (offset == null) {
                batch.delete(own, key);
            } else {
                batch.put(own, key, bytes(offset));
            }
        });
    }

    void forgetOffsets() {
        own.deleteRange(KeyRange.prefix(text(OFFSET)));
    }

    private static byte[] bytes(long number) {
        return ByteBuffer.allocate(Long.BYTES).putLong(number).array();
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
