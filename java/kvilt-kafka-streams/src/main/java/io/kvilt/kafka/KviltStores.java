package io.kvilt.kafka;

import java.time.Duration;
import java.util.Objects;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.VersionedKeyValueToBytesStoreAdapter;

/**
 * State stores kept by Kvilt, one by one: what {@link Stores} offers for RocksDB, under shorter names. For a whole
 * topology there is {@link KviltDslStoreSuppliers}.
 *
 * <pre>{@code
 * builder.table("users", Materialized.as(KviltStores.timestampedKeyValue("users")));
 * topology.addStateStore(
 *         Stores.keyValueStoreBuilder(KviltStores.keyValue("events"), Serdes.Bytes(), Serdes.ByteArray()), "counter");
 * }</pre>
 *
 * <p>Changelogs have the same records as those of RocksDB stores: an application that had these is moved by removing
 * its local state, and restores.
 *
 * <p>Keys of more than 64 KiB and values of more than 64 MiB are refused, so a changelog that has such records cannot
 * be restored. For keys the limit is 20 bytes less in a window store, 24 in a session store and 11 in a versioned one,
 * where each zero byte of a key counts twice.
 */
public final class KviltStores {
    private KviltStores() {}

    /**
     * A key-value store without timestamps: for {@link Stores#keyValueStoreBuilder}.
     *
     * @param name the name of the store
     * @return what makes the store
     */
    public static KeyValueBytesStoreSupplier keyValue(String name) {
        return new KeyValue(name, false);
    }

    /**
     * A key-value store that keeps a timestamp with each value: for {@link Stores#timestampedKeyValueStoreBuilder}, and
     * for tables and aggregations of the DSL.
     *
     * @param name the name of the store
     * @return what makes the store
     */
    public static KeyValueBytesStoreSupplier timestampedKeyValue(String name) {
        return new KeyValue(name, true);
    }

    /**
     * A window store without timestamps: for {@link Stores#windowStoreBuilder}, and for joins of streams.
     *
     * @param name the name of the store
     * @param retention how long windows are kept at least, in the time of the records
     * @param windowSize the length of each window
     * @param retainDuplicates whether there may be several values for a key and window
     * @return what makes the store
     * @throws IllegalArgumentException if a time is negative, or the windows are longer than they are kept
     */
    public static WindowBytesStoreSupplier window(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        return new Window(
                name, millis(retention, "retention"), millis(windowSize, "windowSize"), retainDuplicates, false, false);
    }

    /**
     * A window store that keeps a timestamp with each value: for {@link Stores#timestampedWindowStoreBuilder}, and for
     * windowed aggregations of the DSL.
     *
     * @param name the name of the store
     * @param retention how long windows are kept at least, in the time of the records
     * @param windowSize the length of each window
     * @param retainDuplicates whether there may be several values for a key and window
     * @return what makes the store
     * @throws IllegalArgumentException if a time is negative, or the windows are longer than they are kept
     */
    public static WindowBytesStoreSupplier timestampedWindow(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        return new Window(
                name, millis(retention, "retention"), millis(windowSize, "windowSize"), retainDuplicates, true, false);
    }

    /**
     * A session store: for {@link Stores#sessionStoreBuilder}, and for aggregations by session.
     *
     * @param name the name of the store
     * @param retention how long sessions are kept at least behind their end, in the time of the records
     * @return what makes the store
     * @throws IllegalArgumentException if the time is negative
     */
    public static SessionBytesStoreSupplier session(String name, Duration retention) {
        return new Session(name, millis(retention, "retention"));
    }

    /**
     * A versioned store, with segments of the length that Kafka's would have.
     *
     * <p>A longer retention does not bring back what a shorter one removed: the history grows from then on, unless the
     * segments have another length, too, so that the store is restored.
     *
     * @param name the name of the store
     * @param historyRetention how long what was valid can be asked for, in the time of the records; records that are
     *     later than this are passed over
     * @return what makes the store
     * @throws IllegalArgumentException if the time is negative
     */
    public static VersionedBytesStoreSupplier versionedKeyValue(String name, Duration historyRetention) {
        long retention = millis(historyRetention, "historyRetention");
        return new Versioned(name, retention, KviltVersionedStore.interval(retention));
    }

    /**
     * A versioned store: for {@link Stores#versionedKeyValueStoreBuilder}, and for tables of the DSL.
     *
     * <p>A longer retention does not bring back what a shorter one removed: the history grows from then on.
     *
     * @param name the name of the store
     * @param historyRetention how long what was valid can be asked for, in the time of the records; records that are
     *     later than this are passed over
     * @param segmentInterval how long versions may stay on the disk that cannot be asked for any more; a store of
     *     another interval is restored
     * @return what makes the store
     * @throws IllegalArgumentException if the retention is negative, or the interval is not positive
     */
    public static VersionedBytesStoreSupplier versionedKeyValue(
            String name, Duration historyRetention, Duration segmentInterval) {
        return new Versioned(
                name, millis(historyRetention, "historyRetention"), millis(segmentInterval, "segmentInterval"));
    }

    /** For results at the close of windows. */
    static WindowBytesStoreSupplier closingWindow(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates, boolean isTimestamped) {
        return new Window(
                name,
                millis(retention, "retention"),
                millis(windowSize, "windowSize"),
                retainDuplicates,
                isTimestamped,
                true);
    }

    private static long millis(Duration duration, String what) {
        long millis = Objects.requireNonNull(duration, what).toMillis();
        if (millis < 0) {
            throw new IllegalArgumentException(what + " is negative: " + duration);
        }
        return millis;
    }

    private record KeyValue(String name, boolean isTimestamped) implements KeyValueBytesStoreSupplier {
        KeyValue {
            Objects.requireNonNull(name, "name");
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return isTimestamped ? new KviltKeyValueStore.Timestamped(name) : new KviltKeyValueStore(name);
        }

        @Override
        public String metricsScope() {
            return "kvilt";
        }
    }

    private record Window(
            String name,
            long retentionPeriod,
            long windowSize,
            boolean retainDuplicates,
            boolean isTimestamped,
            boolean isClosing)
            implements WindowBytesStoreSupplier {
        Window {
            Objects.requireNonNull(name, "name");
            if (windowSize > retentionPeriod) {
                throw new IllegalArgumentException("The windows of " + name + " are of " + windowSize
                        + " ms, and kept for less: " + retentionPeriod + " ms");
            }
        }

        @Override
        public WindowStore<Bytes, byte[]> get() {
            return isTimestamped
                    ? new KviltWindowStore.Timestamped(name, retentionPeriod, windowSize, retainDuplicates, isClosing)
                    : new KviltWindowStore(name, retentionPeriod, windowSize, retainDuplicates, isClosing);
        }

        @Override
        public String metricsScope() {
            return "kvilt-window";
        }

        @Override
        public long segmentIntervalMs() {
            return SegmentedStore.interval(retentionPeriod);
        }
    }

    private record Versioned(String name, long historyRetentionMs, long segmentInterval)
            implements VersionedBytesStoreSupplier {
        Versioned {
            Objects.requireNonNull(name, "name");
            if (segmentInterval == 0) {
                throw new IllegalArgumentException("segmentInterval is zero");
            }
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return new VersionedKeyValueToBytesStoreAdapter(
                    new KviltVersionedStore(name, historyRetentionMs, segmentInterval));
        }

        @Override
        public String metricsScope() {
            return "kvilt-versioned";
        }
    }

    private record Session(String name, long retentionPeriod) implements SessionBytesStoreSupplier {
        Session {
            Objects.requireNonNull(name, "name");
        }

        @Override
        public SessionStore<Bytes, byte[]> get() {
            return new KviltSessionStore(name, retentionPeriod);
        }

        @Override
        public String metricsScope() {
            return "kvilt-session";
        }

        @Override
        public long segmentIntervalMs() {
            return SegmentedStore.interval(retentionPeriod);
        }
    }
}
