package org.apache.kafka.streams.state.internals;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.kvilt.kafka.KviltStores;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Test;

/** Kafka's own tests of window stores, on ours. */
class KviltWindowStoreTest extends AbstractWindowBytesStoreTest {
    private int stores;

    @Override
    <K, V> WindowStore<K, V> buildWindowStore(
            long retentionPeriod, long windowSize, boolean retainDuplicates, Serde<K> keySerde, Serde<V> valueSerde) {
        return Stores.windowStoreBuilder(
                        KviltStores.window(
                                // Some open a second one beside the first, which RocksDB lets pass while it is empty.
                                "window-" + stores++,
                                Duration.ofMillis(retentionPeriod),
                                Duration.ofMillis(windowSize),
                                retainDuplicates),
                        keySerde,
                        valueSerde)
                .build();
    }

    /** Kafka's iterators may see what is put later; ours are snapshots. */
    @Test
    @Override
    public void shouldNotThrowConcurrentModificationException() {
        windowStore.put(1, "one", 0);
        try (KeyValueIterator<Windowed<Integer>, String> windows = windowStore.all()) {
            windowStore.put(1, "two", 30);
            windowStore.put(2, "three", 60);
            assertEquals("one", windows.next().value);
            assertFalse(windows.hasNext());
        }
    }
}
