package io.kvilt.kafka;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.StreamsConfig.InternalConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/**
 * What every store of ours does alike: it opens, restores, commits, answers Kafka's queries, and closes.
 *
 * <p>From Kafka 4.3 on a store keeps its offsets itself, and {@link #commit} comes with them. Before, {@link #flush} is
 * the commit, and Kafka writes the offsets to a file once it has returned; so it syncs.
 */
abstract class KviltStore implements StateStore {
    private final String name;
    private final String kind;

    private StateStoreContext context;

    /** Null until it was opened; a new one at each open. */
    private volatile Storage storage;

    KviltStore(String name, String kind) {
        this.name = Objects.requireNonNull(name, "name");
        this.kind = kind;
    }

    @Override
    public final String name() {
        return name;
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        this.context = context;
        Storage open = Storage.open(name, kind, scope(), context);
        storage = open;
        try {
            opened(open, context);
            boolean hasPositions = InternalConfig.getBoolean(
                    context.appConfigs(), InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED, false);
            RecordBatchingStateRestoreCallback restore = records -> restore(records, hasPositions);
            context.register(root, restore);
        } catch (RuntimeException | Error e) {
            // Kafka closes only what was registered, and the directory would stay busy.
            open.close();
            throw e;
        }
    }

    /** As its supplier has it. */
    private String scope() {
        return kind.startsWith("key-value") ? "kvilt" : "kvilt-" + kind.split(" ")[0];
    }

    /** Looks at what the store has when it is opened. */
    void opened(Storage storage, StateStoreContext context) {}

    /** Adds the rows that a record of the changelog stands for, which has a key; none if it is no more wanted. */
    abstract void restored(ConsumerRecord<byte[], byte[]> record, List<Map.Entry<byte[], byte[]>> rows);

    /** Looks at the store when some records have become rows. */
    void settled(Storage storage, int records) {}

    private void restore(Collection<ConsumerRecord<byte[], byte[]>> records, boolean hasPositions) {
        Storage open = storage();
        List<Map.Entry<byte[], byte[]>> rows = new ArrayList<>(records.size());
        Position reached = Position.emptyPosition();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            try {
                Objects.requireNonNull(record.key(), "it has no key");
                restored(record, rows);
            } catch (NullPointerException | IllegalArgumentException e) {
                throw new ProcessorStateException(
                        "The record at offset " + record.offset() + " of " + record.topic() + "-" + record.partition()
                                + " cannot be restored to the store " + name + ": " + e.getMessage(),
                        e);
            }
            ChangelogRecordDeserializationHelper.applyChecksAndUpdatePosition(record, hasPositions, reached);
        }
        // Together, so that no query finds a position whose rows are still to come.
        synchronized (open.position()) {
            open.restore(rows);
            open.position().merge(reached);
        }
        settled(open, records.size());
    }

    /** A key and the value that it gets, null for none: what {@code Map.entry} does not take. */
    record Row(byte[] key, byte[] value) implements Map.Entry<byte[], byte[]> {
        @Override
        public byte[] getKey() {
            return key;
        }

        @Override
        public byte[] getValue() {
            return value;
        }

        @Override
        public byte[] setValue(byte[] value) {
            throw new UnsupportedOperationException();
        }
    }

    /** The open store. */
    final Storage storage() {
        Storage open = storage;
        if (open == null) {
            throw new InvalidStateStoreException(
                    "Store " + name + " was not opened yet");
        }
        open.check();
        return open;
    }

    @Override
    @SuppressWarnings("deprecation")
    public final void flush() {
        Storage open = storage;
        if (open != null && open.isOpen()) {
            open.commit(null, true);
        }
    }

    @Override
    public final void commit(Map<TopicPartition, Long> changelogOffsets) {
        Storage open = storage;
        if (open != null && open.isOpen()) {
            open.commit(changelogOffsets, false);
        }
    }

    @Override
    public final Long committedOffset(TopicPartition partition) {
        return storage().committedOffset(partition);
    }

    @Override
    @SuppressWarnings("deprecation")
    public final boolean managesOffsets() {
        return true;
    }

    /**
     * What Kafka asks from 4.4 on, to commit before stores hold back too much.
     *
     * @return bytes, about
     */
    public final long approximateNumUncommittedBytes() {
        Storage open = storage;
        return open == null ? 0 : open.uncommittedBytes();
    }

    @Override
    public final boolean persistent() {
        return true;
    }

    @Override
    public final boolean isOpen() {
        Storage open = storage;
        return open != null && open.isOpen();
    }

    /** The number that all stores of the task have in their topics. */
    final int partition() {
        return context.taskId().partition();
    }

    @Override
    public final Position getPosition() {
        return storage().position();
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        return StoreQueryUtils.handleBasicQueries(query, bound, config, this, storage().position(), context);
    }

    @Override
    public final void close() {
        Storage open = storage;
        if (open != null) {
            open.close();
        }
    }
}
