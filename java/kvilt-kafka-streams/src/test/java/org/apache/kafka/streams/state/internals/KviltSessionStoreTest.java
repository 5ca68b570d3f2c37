package org.apache.kafka.streams.state.internals;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.kvilt.kafka.KviltStores;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.MockRecordCollector;
import org.junit.jupiter.api.Test;

/** Kafka's own tests of session stores, on ours. */
class KviltSessionStoreTest extends AbstractSessionBytesStoreTest {
    /** Some open a second one beside the first, which RocksDB lets pass while it is empty. */
    private int stores;

    @Override
    <K, V> SessionStore<K, V> buildSessionStore(long retentionPeriod, Serde<K> keySerde, Serde<V> valueSerde) {
        return Stores.sessionStoreBuilder(
                        KviltStores.session("session-" + stores++, Duration.ofMillis(retentionPeriod)),
                        keySerde,
                        valueSerde)
                .build();
    }

    /** As those, ours find sessions by their end alone, too. */
    @Override
    StoreType storeType() {
        return StoreType.RocksDBTimeOrderedSessionStoreWithIndex;
    }

    /** Kafka's test reads from a store that it has closed, and restores into that. Ours restores into another one. */
    @Test
    @Override
    public void shouldRestore() {
        List<KeyValue<Windowed<String>, Long>> expected = List.of(
                KeyValue.pair(new Windowed<>("a", new SessionWindow(0, 0)), 1L),
                KeyValue.pair(new Windowed<>("a", new SessionWindow(10, 10)), 2L),
                KeyValue.pair(new Windowed<>("a", new SessionWindow(100, 100)), 3L),
                KeyValue.pair(new Windowed<>("a", new SessionWindow(1000, 1000)), 4L));
        expected.forEach(session -> sessionStore.put(session.key, session.value));
        Windowed<String> removed = new Windowed<>("a", new SessionWindow(20, 30));
        sessionStore.put(removed, 5L);
        sessionStore.remove(removed);
        List<KeyValue<byte[], byte[]>> changelog = new ArrayList<>();
        for (ProducerRecord<Object, Object> record : ((MockRecordCollector) context.recordCollector()).collected()) {
            changelog.add(KeyValue.pair(((Bytes) record.key()).get(), (byte[]) record.value()));
        }
        assertEquals(6, changelog.size());
        sessionStore.close();
        assertThrows(InvalidStateStoreException.class, () -> sessionStore.fetch("a"));

        sessionStore = buildSessionStore(RETENTION_PERIOD, Serdes.String(), Serdes.Long());
        InternalMockProcessorContext<?, ?> task = context;
        sessionStore.init((StateStoreContext) task, sessionStore);
        task.restore(sessionStore.name(), changelog);
        try (KeyValueIterator<Windowed<String>, Long> sessions = sessionStore.fetch("a")) {
            List<KeyValue<Windowed<String>, Long>> found = new ArrayList<>();
            sessions.forEachRemaining(found::add);
            assertEquals(expected, found);
        }
    }
}
