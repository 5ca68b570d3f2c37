package io.kvilt.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * A processor that runs random operations on our store, Kafka's in memory and Kafka's on RocksDB gets from ours what it
 * gets from both, or from one where these two differ, and all three have the same changelog. Kafka commits behind each
 * record.
 */
class SameInTopologyTest {
    private static final int RECORDS = 50;
    private static final int OPERATIONS_MAX = 48;
    private static final Duration RETENTION = Duration.ofMinutes(3);
    private static final Serde<Bytes> KEYS = Serdes.Bytes();
    private static final Serde<byte[]> VALUES = Serdes.ByteArray();

    /** @param isCached whether Kafka's record cache lies over the stores */
    record Case(long seed, boolean isExactlyOnce, boolean isCached) {}

    static Stream<Case> cases() {
        long fresh = Operations.FRESH_SEED;
        return Stream.of(
                new Case(1, false, false),
                new Case(2, true, false),
                new Case(3, true, true),
                new Case(fresh, fresh % 3 > 0, fresh % 4 == 0));
    }

    /** A store of each kind with the same operations. */
    record Three<S>(S memory, S rocks, S ours) {
        <T> Three<T> map(Function<S, T> function) {
            return new Three<>(function.apply(memory), function.apply(rocks), function.apply(ours));
        }

        List<S> list() {
            return List.of(memory, rocks, ours);
        }
    }

    @TempDir
    Path directory;

    private Operations operations;
    private Agreement agreement;
    private long now = Operations.BEGIN;

    @ParameterizedTest
    @MethodSource("cases")
    void keyValueStoresAgree(Case how) {
        var suppliers = new Three<>(
                Stores.inMemoryKeyValueStore("memory"),
                Stores.persistentKeyValueStore("rocks"),
                KviltStores.keyValue("ours"));
        var builders = suppliers.map(supplier -> Stores.keyValueStoreBuilder(supplier, KEYS, VALUES));
        run(how, builders, (Three<KeyValueStore<Bytes, byte[]>> stores) -> {
            var operation = operations.onKeyValues();
            var results = stores.map(operation);
            agreement.all(operation, results.memory, results.rocks, results.ours);
        });
    }

    @ParameterizedTest
    @MethodSource("cases")
    void windowStoresAgree(Case how) {
        Duration size = Duration.ofSeconds(1);
        boolean hasDuplicates = !how.isCached && how.seed % 2 == 0;
        var suppliers = new Three<>(
                Stores.inMemoryWindowStore("memory", RETENTION, size, hasDuplicates),
                Stores.persistentWindowStore("rocks", RETENTION, size, hasDuplicates),
                KviltStores.window("ours", RETENTION, size, hasDuplicates));
        var builders = suppliers.map(supplier -> Stores.windowStoreBuilder(supplier, KEYS, VALUES));
        run(how, builders, (Three<WindowStore<Bytes, byte[]>> stores) -> {
            var operation = operations.onWindows(now, hasDuplicates);
            compare(how, operation, stores.map(tried(operation)));
        });
    }

    @ParameterizedTest
    @MethodSource("cases")
    void sessionStoresAgree(Case how) {
        var suppliers = new Three<>(
                Stores.inMemorySessionStore("memory", RETENTION),
                Stores.persistentSessionStore("rocks", RETENTION),
                KviltStores.session("ours", RETENTION));
        var builders = suppliers.map(supplier -> Stores.sessionStoreBuilder(supplier, KEYS, VALUES));
        run(how, builders, (Three<SessionStore<Bytes, byte[]>> stores) -> {
            var operation = operations.onSessions(now);
            compare(how, operation, stores.map(tried(operation)));
        });
    }

    /** What an operation returns, or which error it throws: Kafka's classes around stores do so in some ranges. */
    private static <S> Function<S, List<String>> tried(Function<S, List<String>> operation) {
        return store -> {
            try {
                return operation.apply(store);
            } catch (RuntimeException e) {
                return List.of(Agreement.FAILURE + e);
            }
        };
    }

    private void compare(Case how, Object operation, Three<List<String>> results) {
        if (how.isCached) {
            agreement.rowsUnderCache(operation, results.memory, results.rocks, results.ours);
        } else {
            agreement.rows(operation, results.memory, results.rocks, results.ours);
        }
    }

    private <S extends StateStore> void run(Case how, Three<StoreBuilder<S>> builders, Consumer<Three<S>> step) {
        System.out.println("SameInTopologyTest: " + how);
        Random random = new Random(how.seed);
        operations = new Operations(random);
        agreement = new Agreement(how);
        Topology topology = new Topology()
                .addSource("source", KEYS.deserializer(), VALUES.deserializer(), "input")
                .addProcessor("processor", () -> new Steps<>(random, builders.map(StoreBuilder::name), step), "source");
        for (StoreBuilder<S> builder : builders.list()) {
            topology.addStateStore(how.isCached ? builder.withCachingEnabled() : builder, "processor");
        }
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, properties(how))) {
            var input = driver.createInputTopic("input", KEYS.serializer(), VALUES.serializer());
            for (int i = 0; i < RECORDS; i++) {
                input.pipeInput(new TestRecord<>(Bytes.wrap(new byte[] {1}), new byte[] {1}, null, now));
            }
            agreement.assertKafkasAgreeIn(how.isCached ? 20 : 75);
            Three<List<String>> changelogs = builders.map(builder -> changelog(driver, builder.name()));
            assertFalse(changelogs.rocks.isEmpty());
            assertEquals(changelogs.rocks, changelogs.memory, () -> "Kafka's changelogs of " + how);
            assertEquals(changelogs.rocks, changelogs.ours, () -> "our changelog of " + how);
        }
    }

    private Properties properties(Case how) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "test");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:1");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory.toString());
        properties.put(KviltConfig.MEMORY_BUDGET_BYTES_CONFIG, 64 << 20);
        if (how.isExactlyOnce) {
            properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
            properties.put("enable.transactional.statestores", true);
            properties.put(KviltConfig.HAS_TRANSACTIONS_CONFIG, true);
        }
        return properties;
    }

    private static List<String> changelog(TopologyTestDriver driver, String store) {
        List<String> records = new ArrayList<>();
        var output = driver.createOutputTopic(
                "test-" + store + "-changelog", new ByteArrayDeserializer(), new ByteArrayDeserializer());
        while (!output.isEmpty()) {
            TestRecord<byte[], byte[]> record = output.readRecord();
            records.add(record.timestamp() + " " + Text.of(record.key()) + "=" + Text.of(record.value()));
        }
        return records;
    }

    /** Runs some operations for each record. */
    private final class Steps<S extends StateStore> implements Processor<Bytes, byte[], Void, Void> {
        private final Random random;
        private final Three<String> names;
        private final Consumer<Three<S>> step;
        private Three<S> stores;

        Steps(Random random, Three<String> names, Consumer<Three<S>> step) {
            this.random = random;
            this.names = names;
            this.step = step;
        }

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            stores = names.map(context::getStateStore);
        }

        @Override
        public void process(Record<Bytes, byte[]> record) {
            for (int i = 1 + random.nextInt(OPERATIONS_MAX); i > 0; i--) {
                now += random.nextInt(1000);
                step.accept(stores);
            }
        }
    }
}
