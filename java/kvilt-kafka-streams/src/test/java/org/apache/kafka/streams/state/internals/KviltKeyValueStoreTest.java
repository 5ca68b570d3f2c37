package org.apache.kafka.streams.state.internals;

import io.kvilt.kafka.KviltStores;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Kafka's own tests of key-value stores, on ours. */
class KviltKeyValueStoreTest extends AbstractKeyValueStoreTest {
    @Override
    @SuppressWarnings("unchecked")
    protected <K, V> KeyValueStore<K, V> createKeyValueStore(StateStoreContext context) {
        KeyValueStore<K, V> store = Stores.keyValueStoreBuilder(
                        KviltStores.keyValue("my-store"), (Serde<K>) context.keySerde(), (Serde<V>) context.valueSerde())
                .build();
        store.init(context, store);
        return store;
    }
}
