package org.apache.kafka.streams.state.internals;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.mockito.AdditionalAnswers.delegatesTo;
import static org.mockito.Mockito.mock;

import io.kvilt.kafka.KviltStores;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Kafka's own tests of versioned stores, on ours: their calls of RocksDB's class arrive here. */
class KviltVersionedStoreTest extends RocksDBVersionedStoreTest {
    /** What the tests name. */
    private static final String NAME = "myversionedrocks";

    private static final long RETENTION_MS = 300_000;

    /** The methods that the tests call, under their names. */
    public static final class Ours {
        private final InternalMockProcessorContext<?, ?> context;
        private final VersionedKeyValueStore<Bytes, byte[]> store;

        Ours(InternalMockProcessorContext<?, ?> context, long retention) {
            this.context = context;
            Duration interval = Duration.ofMillis(RETENTION_MS / 3);
            store = ((VersionedKeyValueToBytesStoreAdapter)
                            KviltStores.versionedKeyValue(NAME, Duration.ofMillis(retention), interval).get())
                    .inner;
            store.init((StateStoreContext) context, store);
        }

        public long put(Bytes key, byte[] value, long timestamp) {
            return store.put(key, value, timestamp);
        }

        public VersionedRecord<byte[]> delete(Bytes key, long timestamp) {
            return store.delete(key, timestamp);
        }

        public VersionedRecord<byte[]> get(Bytes key) {
            return store.get(key);
        }

        public VersionedRecord<byte[]> get(Bytes key, long asOf) {
            return store.get(key, asOf);
        }

        public VersionedRecordIterator<byte[]> get(Bytes key, long from, long to, ResultOrder order) {
            MultiVersionedKeyQuery<Bytes, byte[]> query = MultiVersionedKeyQuery.<Bytes, byte[]>withKey(key)
                    .fromTime(Instant.ofEpochMilli(from))
                    .toTime(Instant.ofEpochMilli(to));
            return store.query(
                            order == ResultOrder.ASCENDING ? query.withAscendingTimestamps() : query,
                            PositionBound.unbounded(),
                            new QueryConfig(false))
                    .getResult();
        }

        public void restoreBatch(Collection<ConsumerRecord<byte[], byte[]>> records) {
            context.restoreWithHeaders(NAME, new ArrayList<>(records));
        }

        public void close() {
            store.close();
        }
    }

    private Ours ours;

    @BeforeEach
    @Override
    public void before() {
        super.before();
        try {
            RocksDBVersionedStore theirs = (RocksDBVersionedStore) field("store").get(this);
            theirs.close();
            ours = new Ours((InternalMockProcessorContext<?, ?>) field("context").get(this), RETENTION_MS);
            field("store").set(this, mock(RocksDBVersionedStore.class, delegatesTo(ours)));
        } catch (IllegalAccessException e) {
            throw new AssertionError(e);
        }
    }

    private static Field field(String name) {
        try {
            Field field = RocksDBVersionedStoreTest.class.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException e) {
            throw new AssertionError(e);
        }
    }

    /** Ours has its position beside the rows, and there never was a file of it. */
    @Test
    public void shouldMigrateExistingPositionFromFile() {
        assertEquals(Position.emptyPosition(), ours.store.getPosition());
    }

    /** Kafka's test makes a store of its own. */
    @Test
    @Override
    public void shouldAllowZeroHistoryRetention() {
        ours.close();
        Ours none = new Ours(ours.context, 0);
        Bytes key = Bytes.wrap("k".getBytes(StandardCharsets.UTF_8));
        List<byte[]> values = List.of(new byte[] {1}, new byte[] {2}, new byte[] {3});
        assertEquals(-1, none.put(key, values.get(0), 10));
        assertEquals(-1, none.put(key, values.get(1), 10));
        assertEquals(values.get(1)[0], none.get(key, 10).value()[0]);
        assertEquals(values.get(1)[0], none.get(key, 11).value()[0]);
        assertEquals(-1, none.put(key, values.get(2), 12));
        assertNull(none.get(key, 11));
        assertNotNull(none.delete(key, 13));
        assertNull(none.get(key));
        assertEquals(VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT, none.put(key, values.get(0), 12));
        none.close();
    }
}
