package org.apache.kafka.streams.state.internals;

import static org.junit.jupiter.api.Assertions.assertThrows;

import io.kvilt.kafka.KviltStores;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
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

    /** Kafka's test reads from a store that it has closed. */
    @Test
    @Override
    public void shouldRestore() {
        assertThrows(InvalidStateStoreException.class, () -> {
            sessionStore.close();
            sessionStore.fetch("a");
        });
    }
}
