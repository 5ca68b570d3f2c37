package io.kvilt.kafka;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Random;
import java.util.function.Function;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Random operations on our stores, Kafka's in memory and Kafka's on RocksDB have the same results. */
class SameAsKafkasTest {
    private static final int STEPS = 1000;
    private static final TopicPartition CHANGELOG = new TopicPartition("test-store-changelog", 0);

    /** @param uncommittedMax few bytes make stores write before their tasks commit */
    record Case(long seed, boolean isExactlyOnce, long uncommittedMax) {}

    static Stream<Case> cases() {
        return Stream.of(
                new Case(1, false, 64 << 20),
                new Case(2, true, 64 << 20),
                new Case(3, true, 2000),
                new Case(4, true, 0),
                new Case(Operations.FRESH_SEED, Operations.FRESH_SEED % 3 > 0, 2000));
    }

    @TempDir
    Path directory;

    private Random random;
    private Task task;
    private Task theirs;

    private Operations operations;
    private Agreement agreement;

    private void begin(Case how) {
        random = new Random(how.seed);
        operations = new Operations(random);
        agreement = new Agreement(how);
        task = new Task(directory.resolve("ours"), how.isExactlyOnce)
                .with(KviltConfig.UNCOMMITTED_BYTES_MAX_CONFIG, how.uncommittedMax);
        theirs = new Task(directory.resolve("theirs"), how.isExactlyOnce);
    }

    /** Commits, and sometimes opens the store anew. */
    private <S extends org.apache.kafka.streams.processor.StateStore> S settle(S store, Function<Task, S> open) {
        ((KviltStore) store).commit(Map.of(CHANGELOG, random.nextLong(1000)));
        if (random.nextInt(4) > 0) {
            return store;
        }
        store.close();
        task.renew();
        return open.apply(task);
    }

    @ParameterizedTest
    @MethodSource("cases")
    void keyValueStoresAgree(Case how) {
        begin(how);
        Function<Task, KeyValueStore<Bytes, byte[]>> open =
                task -> task.open(KviltStores.keyValue("store").get());
        KeyValueStore<Bytes, byte[]> ours = open.apply(task);
        KeyValueStore<Bytes, byte[]> memory =
                theirs.open(Stores.inMemoryKeyValueStore("memory").get());
        KeyValueStore<Bytes, byte[]> rocks =
                theirs.open(Stores.persistentKeyValueStore("rocks").get());
        for (int step = 0; step < STEPS; step++) {
            var operation = operations.onKeyValues();
            agreement.all(operation, operation.apply(memory), operation.apply(rocks), operation.apply(ours));
            if (random.nextInt(60) == 0) {
                ours = settle(ours, open);
            }
        }
        agreement.assertKafkasAgreeIn(75);
        ours.close();
        memory.close();
        rocks.close();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void windowStoresAgree(Case how) {
        begin(how);
        boolean hasDuplicates = how.seed % 4 == 0;
        Duration retention = Duration.ofMinutes(3);
        Duration size = Duration.ofSeconds(1);
        Function<Task, WindowStore<Bytes, byte[]>> open = task ->
                task.open(KviltStores.window("store", retention, size, hasDuplicates).get());
        WindowStore<Bytes, byte[]> ours = open.apply(task);
        WindowStore<Bytes, byte[]> memory = theirs.open(
                Stores.inMemoryWindowStore("memory", retention, size, hasDuplicates).get());
        WindowStore<Bytes, byte[]> rocks = theirs.open(
                Stores.persistentWindowStore("rocks", retention, size, hasDuplicates).get());
        long now = Operations.BEGIN;
        for (int step = 0; step < STEPS; step++) {
            now += random.nextInt(1000);
            var operation = operations.onWindows(now, hasDuplicates);
            agreement.rows(operation, operation.apply(memory), operation.apply(rocks), operation.apply(ours));
            if (!hasDuplicates && random.nextInt(60) == 0) {
                ours = settle(ours, open);
            }
        }
        agreement.assertKafkasAgreeIn(75);
        ours.close();
        memory.close();
        rocks.close();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void sessionStoresAgree(Case how) {
        begin(how);
        Duration retention = Duration.ofMinutes(3);
        Function<Task, SessionStore<Bytes, byte[]>> open =
                task -> task.open(KviltStores.session("store", retention).get());
        SessionStore<Bytes, byte[]> ours = open.apply(task);
        SessionStore<Bytes, byte[]> memory =
                theirs.open(Stores.inMemorySessionStore("memory", retention).get());
        SessionStore<Bytes, byte[]> rocks =
                theirs.open(Stores.persistentSessionStore("rocks", retention).get());
        long now = Operations.BEGIN;
        for (int step = 0; step < STEPS; step++) {
            now += random.nextInt(1000);
            var operation = operations.onSessions(now);
            agreement.rows(operation, operation.apply(memory), operation.apply(rocks), operation.apply(ours));
            if (random.nextInt(60) == 0) {
                ours = settle(ours, open);
            }
        }
        agreement.assertKafkasAgreeIn(75);
        ours.close();
        memory.close();
        rocks.close();
    }
}
