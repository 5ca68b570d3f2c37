package io.kvilt.kafka;

import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Makes Kvilt keep the tables, aggregations and joins of the DSL that name no store, by one line:
 *
 * <pre>{@code
 * dsl.store.suppliers.class=io.kvilt.kafka.KviltDslStoreSuppliers
 * }</pre>
 *
 * <p>The line belongs to {@link StreamsConfig}; where the topology is built with other settings than those the
 * application runs with, to those of the topology ({@code TopologyConfig}). Headers of records are not kept, if the
 * topology asks for that (Kafka 4.3). The buffers of {@code suppress} and of stream-table joins with a grace period
 * remain Kafka's own, the latter RocksDB's.
 */
public final class KviltDslStoreSuppliers implements DslStoreSuppliers {
    /** Made by Kafka, by the name of the class. */
    public KviltDslStoreSuppliers() {}

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        return isTimestamped(params)
                ? KviltStores.timestampedKeyValue(params.name())
                : KviltStores.keyValue(params.name());
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        if (params.emitStrategy().type() == EmitStrategy.StrategyType.ON_WINDOW_CLOSE) {
            return KviltStores.closingWindow(
                    params.name(),
                    params.retentionPeriod(),
                    params.windowSize(),
                    params.retainDuplicates(),
                    isTimestamped(params));
        }
        return isTimestamped(params)
                ? KviltStores.timestampedWindow(
                        params.name(), params.retentionPeriod(), params.windowSize(), params.retainDuplicates())
                : KviltStores.window(
                        params.name(), params.retentionPeriod(), params.windowSize(), params.retainDuplicates());
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        return KviltStores.session(params.name(), params.retentionPeriod());
    }

    @SuppressWarnings("deprecation")
    private static boolean isTimestamped(DslKeyValueParams params) {
        try {
            return params.dslStoreFormat() != DslStoreFormat.PLAIN;
        } catch (NoSuchMethodError e) {
            // Kafka before 4.3.
            return params.isTimestamped();
        }
    }

    @SuppressWarnings("deprecation")
    private static boolean isTimestamped(DslWindowParams params) {
        try {
            return params.dslStoreFormat() != DslStoreFormat.PLAIN;
        } catch (NoSuchMethodError e) {
            return params.isTimestamped();
        }
    }
}
