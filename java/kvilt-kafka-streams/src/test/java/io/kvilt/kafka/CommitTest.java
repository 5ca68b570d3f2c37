package io.kvilt.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.Env;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.RangeQuery;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.query.WindowRangeQuery;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What a commit keeps, what a crash leaves, and what other threads see meanwhile. */
class CommitTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("test-store-changelog", 0);

    @TempDir
    Path directory;

    private KviltKeyValueStore open(Task task) {
        return (KviltKeyValueStore) task.open(KviltStores.keyValue("store").get());
    }

    /** A crash: nothing is committed, and another process opens the directory. */
    private KviltKeyValueStore reopen(Task task, KviltStore crashed) {
        crashed.close();
        task.renew();
        return open(task);
    }

    @Test
    void a_crashed_task_finds_its_last_commit() {
        Task task = new Task(directory, true);
        KviltKeyValueStore store = open(task);
        task.context().setRecordContext(new ProcessorRecordContext(0, 41, 0, "input", new RecordHeaders()));
        store.put(Task.key("a"), Task.bytes("1"));
        store.put(Task.key("b"), Task.bytes("1"));
        store.commit(Map.of(CHANGELOG, 5L));
        task.context().setRecordContext(new ProcessorRecordContext(0, 42, 0, "input", new RecordHeaders()));
        store.put(Task.key("a"), Task.bytes("2"));
        store.delete(Task.key("b"));
        store.put(Task.key("c"), Task.bytes("2"));
        assertTrue(store.approximateNumUncommittedBytes() > 0);
        assertEquals(List.of("a=32", "c=32"), Text.of(store.all()));

        store = reopen(task, store);
        assertEquals(List.of("a=31", "b=31"), Text.of(store.all()));
        assertEquals(5, store.committedOffset(CHANGELOG));
        assertEquals(Position.emptyPosition().withComponent("input", 0, 41), store.getPosition());
        store.close();
    }

    @Test
    void what_was_written_early_takes_the_offset_away_until_the_next_commit() {
        Task task = new Task(directory, true).with(KviltConfig.UNCOMMITTED_BYTES_MAX_CONFIG, "0");
        KviltKeyValueStore store = open(task);
        store.commit(Map.of(CHANGELOG, 5L));
        store.put(Task.key("a"), Task.bytes("1"));

        store = reopen(task, store);
        assertNull(store.committedOffset(CHANGELOG));
        store.commit(Map.of(CHANGELOG, 6L));
        assertEquals(6, store.committedOffset(CHANGELOG));

        store = reopen(task, store);
        assertEquals(6, store.committedOffset(CHANGELOG));
        store.close();
    }

    /** Kafka 4.4 does not remove a transactional store that has no offset: it restores over what is there. */
    @Test
    void what_was_written_early_and_not_committed_is_gone_where_kafka_restores() {
        Task task = new Task(directory, true)
                .with(KviltConfig.UNCOMMITTED_BYTES_MAX_CONFIG, "0")
                .withChangelog("store");
        KviltKeyValueStore store = open(task);
        store.commit(Map.of(CHANGELOG, 5L));
        store.put(Task.key("a"), Task.bytes("1"));
        assertEquals(List.of("a=31"), Text.of(store.all()));

        store = reopen(task, store);
        assertNull(store.committedOffset(CHANGELOG));
        assertEquals(List.of(), Text.of(store.all()));
        store.put(Task.key("b"), Task.bytes("1"));
        store.commit(Map.of(CHANGELOG, 6L));

        store = reopen(task, store);
        assertEquals(List.of("b=31"), Text.of(store.all()));
        assertEquals(6, store.committedOffset(CHANGELOG));
        store.close();

        // Writes that went through before the application became transactional are no commit either.
        Task before = new Task(directory, true)
                .with("enable.transactional.statestores", "false")
                .withChangelog("store");
        store = open(before);
        store.put(Task.key("c"), Task.bytes("1"));
        store.close();
        store = open(new Task(directory, true).withChangelog("store"));
        assertEquals(List.of(), Text.of(store.all()));
        store.close();
    }

    /** Kafka from 4.3 on would read the topic again over the rows that are there, and a processor may count them. */
    @Test
    void a_global_store_without_its_commit_begins_anew_where_kafka_asks_for_its_offset() {
        Task task = new Task(directory, true)
                .with("enable.transactional.statestores", "false")
                .withChangelog("store")
                .global();
        KviltKeyValueStore store = open(task);
        store.put(Task.key("a"), Task.bytes("1"));
        store.commit(Map.of(CHANGELOG, 5L));
        store = reopen(task, store);
        assertEquals(5, store.committedOffset(CHANGELOG));
        store.put(Task.key("b"), Task.bytes("1"));

        store = reopen(task, store);
        boolean isAsked = !Checkpoints.ARE_READ_BEFORE_GLOBAL_STORES;
        assertEquals(isAsked ? List.of() : List.of("a=31", "b=31"), Text.of(store.all()));
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
    }

    /** So Kafka 4.4 tells a store of an aborted transaction, before it removes the store; it may not come to that. */
    @Test
    void a_commit_without_offsets_keeps_nothing_of_an_aborted_transaction() {
        Task task = new Task(directory, true).withChangelog("store");
        KviltKeyValueStore store = open(task);
        store.put(Task.key("a"), Task.bytes("1"));
        store.commit(Map.of(CHANGELOG, 5L));
        store.put(Task.key("b"), Task.bytes("1"));
        store.commit(Map.of());
        assertNull(store.get(Task.key("b")));
        assertNull(store.committedOffset(CHANGELOG));

        store = reopen(task, store);
        assertEquals(List.of(), Text.of(store.all()));
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
    }

    /** So does Kafka 4.3, with the offsets of the aborted records; the process may die before the store is removed. */
    @Test
    void a_commit_is_not_believed_before_the_close_where_kafka_commits_aborted_transactions() throws Exception {
        Task task = new Task(directory, true).with("enable.transactional.statestores", "false");
        KviltKeyValueStore store = open(task);
        store.put(Task.key("a"), Task.bytes("1"));
        store.commit(Map.of(CHANGELOG, 4L));
        assertEquals(4, store.committedOffset(CHANGELOG));
        store = reopen(task, store);
        assertEquals(4, store.committedOffset(CHANGELOG));
        store.close();

        // The active one becomes a standby, which is committed as it restores, and knows where it is after a kill.
        Killed.run(Committed.class, directory.toString(), "standby");
        task.renew();
        store = open(task);
        assertEquals(6, store.committedOffset(CHANGELOG));
        assertEquals(List.of("a=31", "b=31", "c=31"), Text.of(store.all()));
        store.close();

        Killed.run(Committed.class, directory.toString(), "active");
        task.renew();
        store = open(task);
        assertNull(store.committedOffset(CHANGELOG));
        // Kafka makes one more commit before it removes such a store.
        store.commit(Map.of(CHANGELOG, -4L));
        store = reopen(task, store);
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
    }

    static final class Committed {
        public static void main(String[] arguments) {
            Task task = new Task(Path.of(arguments[0]), true).with("enable.transactional.statestores", "false");
            KviltKeyValueStore store = (KviltKeyValueStore) task.open(KviltStores.keyValue("store").get());
            store.committedOffset(CHANGELOG);
            store.put(Task.key("b"), Task.bytes("1"));
            store.commit(Map.of(CHANGELOG, 5L));
            if (arguments[1].equals("standby")) {
                store.storage().restore(List.of(new KviltStore.Row(Task.bytes("c"), Task.bytes("1"))));
                store.commit(Map.of(CHANGELOG, 6L));
            }
            Killed.now();
        }
    }

    /** Kafka brings what its own file says, right behind the open; an older Kafka, or a dirty close, left that. */
    @Test
    void offsets_that_come_behind_the_open_are_no_news_to_a_store_that_has_its_own() {
        Task task = new Task(directory, true);
        KviltKeyValueStore store = open(task);
        store.commit(Map.of(CHANGELOG, 4L));
        assertEquals(4, store.committedOffset(CHANGELOG), "it had none");
        store.put(Task.key("a"), Task.bytes("1"));
        store.commit(Map.of(CHANGELOG, 5L));

        store = reopen(task, store);
        store.commit(Map.of(CHANGELOG, 9L));
        assertEquals(5, store.committedOffset(CHANGELOG));
        store.commit(Map.of(CHANGELOG, 9L));
        assertEquals(9, store.committedOffset(CHANGELOG));
        store.close();

        Task marked = new Task(directory, true).with("enable.transactional.statestores", "false");
        store = open(marked);
        store.put(Task.key("b"), Task.bytes("1"));
        store = reopen(marked, store);
        TopicPartition other = new TopicPartition("other", 0);
        store.commit(Map.of(other, 9L));
        assertNull(store.committedOffset(other), "its rows are not those of any offset");
        store.close();
    }

    /** Kafka commits the record of a row before it commits the store, which must not refuse it then. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void a_row_that_is_too_long_is_refused_by_the_write_and_not_by_the_commit(boolean isTransactional) {
        Task task = new Task(directory, true).with("enable.transactional.statestores", isTransactional);
        KviltKeyValueStore store = open(task);
        Bytes longest = Bytes.wrap(new byte[64 << 10]);
        store.put(longest, Task.bytes("1"));
        Bytes longer = Bytes.wrap(new byte[(64 << 10) + 1]);
        byte[] larger = new byte[(64 << 20) + 1];
        List<Executable> refused = List.of(
                () -> store.put(longer, Task.bytes("1")),
                () -> store.delete(longer),
                () -> store.put(Task.key("b"), larger),
                () -> store.putAll(List.of(
                        new KeyValue<>(Task.key("b"), Task.bytes("1")), new KeyValue<>(longer, Task.bytes("1")))));
        for (Executable write : refused) {
            String told = assertThrows(ProcessorStateException.class, write).getMessage();
            assertTrue(told.matches("Cannot (read|write to) the store .* bytes; a (key|value) may have up to .*"), told);
            // Ours and the engine's limits are the same.
            assertTrue(told.contains(told.contains("a key may") ? " 65536" : " 67108864"), told);
        }
        assertNull(store.get(Task.key("b")));
        store.commit(Map.of(CHANGELOG, 5L));
        assertEquals(5, store.committedOffset(CHANGELOG));
        assertArrayEquals(Task.bytes("1"), store.get(longest));
        store.close();
    }

    @Test
    void without_exactly_once_writes_are_kept_and_the_offset_is_that_of_the_commit() {
        Task task = new Task(directory, false);
        KviltKeyValueStore store = open(task);
        store.put(Task.key("a"), Task.bytes("1"));
        store.commit(Map.of(CHANGELOG, 5L));
        store.put(Task.key("b"), Task.bytes("2"));

        store = reopen(task, store);
        assertEquals(List.of("a=31", "b=32"), Text.of(store.all()));
        assertEquals(5, store.committedOffset(CHANGELOG));
        store.close();

        // It has more than was committed, which an exactly-once task must not take for its state.
        Task other = new Task(directory, true);
        store = open(other);
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
    }

    @ParameterizedTest
    @ValueSource(strings = {"enable.transactional.statestores", KviltConfig.HAS_TRANSACTIONS_CONFIG})
    void where_kafka_tells_of_no_commit_a_crashed_exactly_once_store_has_no_offset(String missing) {
        // Both lines that are tested are older than 4.4, so the setting alone does nothing.
        Task task = new Task(directory, true).with(missing, "false");
        KviltKeyValueStore store = open(task);
        store.commit(Map.of(CHANGELOG, 5L));
        store = reopen(task, store);
        assertEquals(5, store.committedOffset(CHANGELOG));
        store.put(Task.key("a"), Task.bytes("1"));
        assertEquals(0, store.approximateNumUncommittedBytes());

        store = reopen(task, store);
        assertNull(store.committedOffset(CHANGELOG), "Kafka wipes it for that");
        store.close();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void a_write_that_fails_leaves_the_next_one_to_mark_the_store(boolean isTransactional) {
        Task task = new Task(directory, true)
                .with("enable.transactional.statestores", String.valueOf(isTransactional))
                .with(KviltConfig.UNCOMMITTED_BYTES_MAX_CONFIG, "0");
        KviltKeyValueStore store = open(task);
        store.commit(Map.of(CHANGELOG, 5L));
        KviltKeyValueStore first = store;
        // The engine refuses a key of so many bytes, and with it the batch.
        List<KeyValue<Bytes, byte[]>> refused = List.of(new KeyValue<>(Bytes.wrap(new byte[1 << 20]), new byte[1]));
        assertThrows(ProcessorStateException.class, () -> first.putAll(refused));
        store.put(Task.key("a"), Task.bytes("1"));

        store = reopen(task, store);
        assertEquals(List.of("a=31"), Text.of(store.all()));
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
    }

    @Test
    void rows_that_wait_are_not_the_programs_arrays() {
        KviltKeyValueStore store = open(new Task(directory, true));
        byte[] key = Task.bytes("a");
        byte[] value = Task.bytes("1");
        store.put(Bytes.wrap(key), value);
        key[0] = 'x';
        value[0] = 'x';
        assertEquals(List.of("a=31"), Text.of(store.all()));
        store.get(Task.key("a"))[0] = 'x';
        try (KeyValueIterator<Bytes, byte[]> rows = store.all()) {
            KeyValue<Bytes, byte[]> row = rows.next();
            row.key.get()[0] = 'x';
            row.value[0] = 'x';
        }
        assertEquals(List.of("a=31"), Text.of(store.all()));
        store.commit(Map.of(CHANGELOG, 5L));
        assertEquals(List.of("a=31"), Text.of(store.all()));
        store.close();
    }

    @Test
    void a_restore_may_have_more_rows_than_a_batch() {
        // Deletes of one key cost least.
        KviltKeyValueStore store = open(new Task(directory, true).with(KviltConfig.ENGINE_CONFIG, "kvell"));
        List<Map.Entry<byte[], byte[]>> rows = new ArrayList<>();
        rows.add(new KviltStore.Row(Task.bytes("a"), Task.bytes("1")));
        rows.addAll(Collections.nCopies(4 << 20, new KviltStore.Row(Task.bytes("b"), null)));
        rows.add(new KviltStore.Row(Task.bytes("c"), Task.bytes("1")));
        store.storage().restore(rows);
        assertEquals(List.of("a=31", "c=31"), Text.of(store.all()));
        store.close();
    }

    @Test
    void what_waits_is_written_early_in_pieces_and_seen_once() {
        Task task = new Task(directory, true).with(KviltConfig.UNCOMMITTED_BYTES_MAX_CONFIG, "5000000");
        KviltKeyValueStore store = open(task);
        store.commit(Map.of(CHANGELOG, 5L));
        int rows = 0;
        // Small ones, so that operations cut it and not bytes.
        for (; rows == 0 || store.approximateNumUncommittedBytes() > 0; rows++) {
            store.put(Task.key(String.format("%06d", rows)), Task.bytes("1"));
        }
        assertTrue(rows > 32 << 10, rows + " rows");
        assertEquals(rows, Text.of(store.all()).size());

        store = reopen(task, store);
        assertEquals(rows, Text.of(store.all()).size());
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
    }

    @Test
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void two_hundred_stores_share_a_budget() throws InterruptedException {
        int budget = 64 << 20;
        Task task = new Task(directory, false).with(KviltConfig.MEMORY_BUDGET_BYTES_CONFIG, budget);
        List<KviltKeyValueStore> stores = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            stores.add((KviltKeyValueStore) task.open(KviltStores.keyValue("store" + i).get()));
        }
        Env shared = Budgets.acquire(budget);
        for (KviltKeyValueStore store : stores) {
            for (int row = 0; row < 50; row++) {
                store.put(Task.key("row" + row), new byte[10_000]);
            }
            store.commit(Map.of(CHANGELOG, 1L));
        }
        assertEquals(budget, shared.memoryBudget());
        // Stores that fill at once may be over it until their background has run; docs/guide/tuning.md has the
        // bound.
        assertTrue(shared.memoryUsed() <= budget * 1.15 + (64 << 20), shared.memoryUsed() + " bytes");
        awaitMemory(shared, (long) (budget * 1.15));
        for (KviltKeyValueStore store : stores) {
            assertEquals(50, Text.of(store.all()).size());
            store.close();
        }
        awaitMemory(shared, 1 << 20);
        Budgets.release(budget);
        assertThrows(IllegalStateException.class, shared::memoryUsed);
    }

    /** The background gives memory back, whenever a busy machine lets it. */
    private static void awaitMemory(Env shared, long most) throws InterruptedException {
        while (shared.memoryUsed() > most) {
            TimeUnit.MILLISECONDS.sleep(5);
        }
    }

    @Test
    void offsets_are_forgotten_one_by_one_and_all_at_once() {
        Task task = new Task(directory, true);
        KviltKeyValueStore store = open(task);
        TopicPartition other = new TopicPartition("other", 1);
        store.commit(Map.of(CHANGELOG, 5L, other, 7L));
        Map<TopicPartition, Long> changes = new HashMap<>();
        changes.put(CHANGELOG, null);
        store.commit(changes);
        assertNull(store.committedOffset(CHANGELOG));
        assertEquals(7, store.committedOffset(other));
        store.commit(Map.of());
        assertNull(store.committedOffset(other));
        store.close();
    }

    @Test
    void a_flush_is_a_commit_without_offsets() {
        Task task = new Task(directory, true);
        KviltKeyValueStore store = open(task);
        store.commit(Map.of(CHANGELOG, 5L));
        store.put(Task.key("a"), Task.bytes("1"));
        store.flush();
        store = reopen(task, store);
        assertArrayEquals(Task.bytes("1"), store.get(Task.key("a")));
        // A Kafka that keeps offsets in its file flushes, and then the store's own are stale.
        assertEquals(Checkpoints.ARE_READ_BEFORE_GLOBAL_STORES ? null : 5L, store.committedOffset(CHANGELOG));
        store.close();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void segments_that_are_over_are_deleted_by_the_commit(boolean isExactlyOnce) {
        Task task = new Task(directory, isExactlyOnce);
        KviltWindowStore store = window(task);
        for (int minute = 0; minute < 60; minute++) {
            store.put(Task.key("a"), Task.bytes("1"), Duration.ofMinutes(minute).toMillis());
            store.put(Task.key("b"), Task.bytes("1"), Duration.ofMinutes(minute).toMillis());
            if (minute % 10 == 0) {
                store.commit(Map.of(CHANGELOG, 5L));
            }
        }
        store.commit(Map.of(CHANGELOG, 5L));
        // Ten minutes of windows are visible, in two or three segments of five.
        assertEquals(20, Text.of(store.all()).size());
        long rows = store.storage().rows();
        assertTrue(20 <= rows && rows <= 30, rows + " rows");
        store.close();

        task.renew();
        store = window(task);
        assertEquals(20, Text.of(store.all()).size(), "time goes on where it was");
        store.put(Task.key("a"), Task.bytes("late"), 0);
        assertNull(store.fetch(Task.key("a"), 0));
        store.close();
    }

    private KviltWindowStore window(Task task) {
        return (KviltWindowStore) task.open(
                KviltStores.window("window", Duration.ofMinutes(10), Duration.ofSeconds(1), false).get());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void other_threads_see_batches_whole_while_the_task_writes(boolean isExactlyOnce) throws Exception {
        Task task = new Task(directory, isExactlyOnce).with(KviltConfig.UNCOMMITTED_BYTES_MAX_CONFIG, "5000");
        KviltKeyValueStore store = open(task);
        List<Bytes> keys = List.of(Task.key("a"), Task.key("b"), Task.key("c"));
        AtomicBoolean isDone = new AtomicBoolean();
        ExecutorService threads = Executors.newFixedThreadPool(2);
        Future<Integer> reads = threads.submit(() -> {
            int scans = 0;
            for (; !isDone.get() || scans == 0; scans++) {
                List<String> rows = Text.of(scans % 2 == 0 ? store.all() : store.reverseAll());
                long values = rows.stream().map(row -> row.substring(2)).distinct().count();
                assertTrue(rows.isEmpty() || rows.size() == 3 && values == 1, rows::toString);
            }
            return scans;
        });
        for (int i = 0; i < 3000; i++) {
            byte[] value = Task.bytes(String.valueOf(i));
            store.putAll(keys.stream().map(key -> new KeyValue<>(key, value)).toList());
            if (i % 50 == 49) {
                store.commit(Map.of(CHANGELOG, (long) i));
            }
        }
        isDone.set(true);
        assertTrue(reads.get() > 0);
        threads.shutdown();
        store.close();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void an_iterator_is_a_snapshot_and_outlives_a_commit_but_not_the_store(boolean isExactlyOnce) {
        Task task = new Task(directory, isExactlyOnce);
        KviltKeyValueStore store = open(task);
        for (int i = 0; i < 1000; i++) {
            store.put(Task.key(String.format("%04d", i)), new byte[100]);
        }
        KeyValueIterator<Bytes, byte[]> rows = store.all();
        KeyValueIterator<Bytes, byte[]> others = store.all();
        store.put(Task.key("0500"), null);
        store.commit(Map.of(CHANGELOG, 1L));
        assertEquals(1000, Text.of(rows).size());
        assertEquals(999, Text.of(store.all()).size());
        assertTrue(others.hasNext());
        others.next();
        store.close();
        assertThrows(InvalidStateStoreException.class, others::hasNext);
        others.close();
    }

    @Test
    void queries_are_answered_as_kafka_puts_them() {
        Task task = new Task(directory, true);
        KviltKeyValueStore store = open(task);
        task.context().setRecordContext(new ProcessorRecordContext(0, 7, 0, "input", new RecordHeaders()));
        for (String key : List.of("a", "b", "c")) {
            store.put(Task.key(key), Task.bytes(key));
        }
        PositionBound any = PositionBound.unbounded();
        QueryConfig config = new QueryConfig(true);
        QueryResult<byte[]> one = store.query(KeyQuery.withKey(Task.key("b")), any, config);
        assertArrayEquals(Task.bytes("b"), one.getResult());
        assertEquals(Position.emptyPosition().withComponent("input", 0, 7), one.getPosition());
        assertEquals(
                List.of("c=63", "b=62"),
                Text.of(store.query(
                                RangeQuery.<Bytes, byte[]>withLowerBound(Task.key("b")).withDescendingKeys(), any, config)
                        .getResult()));
        PositionBound later = PositionBound.at(Position.emptyPosition().withComponent("input", 0, 8));
        assertTrue(store.query(KeyQuery.withKey(Task.key("b")), later, config).isFailure());
        store.close();

        KviltWindowStore windows = window(task);
        for (long begin : Arrays.asList(1000L, 2000L, 3000L)) {
            windows.put(Task.key("a"), Task.bytes("v"), begin);
        }
        Instant from = Instant.ofEpochMilli(2000);
        WindowKeyQuery<Bytes, byte[]> users =
                WindowKeyQuery.withKeyAndWindowStartRange(Task.key("a"), from, from.plusSeconds(9));
        // Kafka's class exchanges the two times; what wraps a store does so again.
        WindowKeyQuery<Bytes, byte[]> raw = WindowKeyQuery.withKeyAndWindowStartRange(
                users.getKey(), users.getTimeFrom().get(), users.getTimeTo().get());
        assertEquals(
                List.of("2000=76", "3000=76"),
                Text.of(windows.query(raw, any, config).getResult()));
        assertEquals(
                2,
                Text.of(windows.query(
                                WindowRangeQuery.<Bytes, byte[]>withWindowStartRange(from, from.plusSeconds(9)),
                                any,
                                config)
                        .getResult())
                        .size());
        windows.close();
        assertFalse(windows.isOpen());

        KviltSessionStore sessions = task.open(
                (KviltSessionStore) KviltStores.session("sessions", Duration.ofHours(1)).get());
        for (String key : List.of("a", "b")) {
            sessions.put(new Windowed<>(Task.key(key), new SessionWindow(1000, 2000)), Task.bytes("v"));
        }
        assertEquals(
                List.of("[b@1000/2000]=76"),
                Text.of(sessions.query(WindowRangeQuery.<Bytes, byte[]>withKey(Task.key("b")), any, config)
                        .getResult()));
        sessions.close();
    }
}
