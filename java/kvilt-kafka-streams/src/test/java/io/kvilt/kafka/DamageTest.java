package io.kvilt.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.spy;

import io.kvilt.Kvilt;
import io.kvilt.Options;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.TaskMigratedException;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.OffsetCheckpoint;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Whatever is wrong: an error that says so, or a store that is restored; never rows that are not there. */
class DamageTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("test-store-changelog", 0);

    @TempDir
    Path directory;

    private KviltKeyValueStore open(Task task) {
        return (KviltKeyValueStore) task.open(KviltStores.keyValue("store").get());
    }

    private void fill(KeyValueStore<Bytes, byte[]> store) {
        for (int i = 0; i < 2000; i++) {
            store.put(Task.key("key" + i), new byte[100]);
        }
        ((KviltStore) store).commit(Map.of(CHANGELOG, 5L));
    }

    /** Turns bytes of every file around, but not the first ones, which say what it is. */
    private void damage(Path store) throws IOException {
        List<Path> files;
        try (Stream<Path> all = Files.walk(store)) {
            files = all.filter(Files::isRegularFile).toList();
        }
        for (Path file : files) {
            byte[] bytes = Files.readAllBytes(file);
            for (int i = 64; i < bytes.length; i += 97) {
                bytes[i] ^= 0x55;
            }
            Files.write(file, bytes);
        }
    }

    @Test
    void a_damaged_store_is_made_anew_if_it_can_be_restored() throws IOException {
        Task task = new Task(directory, false).withChangelog("store");
        KviltKeyValueStore store = open(task);
        fill(store);
        store.close();
        damage(directory.resolve("kvilt/store"));
        new OffsetCheckpoint(directory.resolve(".checkpoint").toFile()).write(Map.of(CHANGELOG, 5L));

        task.renew();
        store = open(task);
        // If the open could not see the damage, a read does, and the next open knows.
        if (store.committedOffset(CHANGELOG) != null) {
            KviltKeyValueStore first = store;
            assertThrows(TaskMigratedException.class, () -> Text.of(first.all()));
            store.close();
            task.renew();
            store = open(task);
        }
        assertEquals(List.of(), Text.of(store.all()));
        assertNull(store.committedOffset(CHANGELOG));
        assertEquals(Map.of(), new OffsetCheckpoint(directory.resolve(".checkpoint").toFile()).read());
        // Which Kafka does now, from the begin.
        task.context().restore("store", List.of(new KeyValue<>(Task.bytes("a"), Task.bytes("1"))));
        assertEquals(List.of("a=31"), Text.of(store.all()));
        store.close();
    }

    @Test
    void a_damage_that_a_read_finds_makes_the_next_open_make_it_anew() throws IOException {
        Task task = new Task(directory, true).withChangelog("store");
        KviltKeyValueStore store = open(task);
        fill(store);
        RuntimeException told = store.storage().failure("read", corrupted());
        assertTrue(told instanceof TaskMigratedException, told::toString);
        store.close();
        task.renew();
        store = open(task);
        assertEquals(List.of(), Text.of(store.all()));
        assertNull(store.committedOffset(CHANGELOG));
        store.close();
        task.renew();
        store = open(task);
        fill(store);
        store.close();
        task.renew();
        store = open(task);
        assertEquals(5, store.committedOffset(CHANGELOG), "the note is gone");
        store.close();
    }

    /** Kafka commits while it restores and follows, in a thread that an exception ends. */
    @Test
    void while_it_is_restored_a_damaged_store_is_not_committed_and_the_first_write_tells() {
        Task task = new Task(directory, true).withChangelog("store");
        KviltKeyValueStore store = open(task);
        task.context().restore("store", List.of(new KeyValue<>(Task.bytes("a"), Task.bytes("1"))));
        store.commit(Map.of(CHANGELOG, 1L));
        store.storage().failure("read", corrupted());
        task.context().restore("store", List.of(new KeyValue<>(Task.bytes("b"), Task.bytes("2"))));
        store.commit(Map.of(CHANGELOG, 2L));
        assertEquals(1, store.committedOffset(CHANGELOG));
        assertThrows(TaskMigratedException.class, () -> store.put(Task.key("c"), Task.bytes("3")));
        store.close();
        task.renew();
        KviltKeyValueStore anew = open(task);
        assertNull(anew.committedOffset(CHANGELOG));
        assertEquals(List.of(), Text.of(anew.all()));
        anew.close();
    }

    @Test
    void what_a_query_finds_damaged_the_thread_of_the_task_is_told_by_its_next_write() throws Exception {
        Task task = new Task(directory, true).withChangelog("store");
        KviltKeyValueStore store = open(task);
        fill(store);
        Thread query = new Thread(() -> store.storage().failure("read", corrupted()));
        query.start();
        query.join();
        Bytes key = Bytes.wrap(Task.bytes("a"));
        assertThrows(TaskMigratedException.class, () -> store.put(key, Task.bytes("2")));
        assertThrows(TaskMigratedException.class, () -> store.commit(Map.of(CHANGELOG, 9L)));
        assertThrows(TaskMigratedException.class, store::flush);
        // An exception here would be the end of the application.
        task.context().restore("store", List.of(new KeyValue<>(Task.bytes("a"), Task.bytes("3"))));
        store.close();
        task.renew();
        KviltKeyValueStore anew = open(task);
        assertNull(anew.get(key));
        anew.close();
    }

    @Test
    void a_note_of_damage_is_no_other_stores_directory() {
        Task task = new Task(directory, true).withChangelog("store").withChangelog("store.damaged");
        KviltKeyValueStore store = open(task);
        fill(store);
        KeyValueStore<Bytes, byte[]> other = task.open(KviltStores.keyValue("store.damaged").get());
        store.close();
        other.close();
        task.renew();
        store = open(task);
        assertEquals(5, store.committedOffset(CHANGELOG));
        store.close();
    }

    @Test
    void an_open_that_did_not_come_to_its_end_leaves_no_store_whose_offset_is_believed() throws IOException {
        OffsetCheckpoint checkpoint = new OffsetCheckpoint(directory.resolve(".checkpoint").toFile());
        Task task = new Task(directory, false).withChangelog("store");
        Kvilt.open(new Options(), directory.resolve("kvilt/store")).close();
        checkpoint.write(Map.of(CHANGELOG, 5L));
        open(task).close();
        assertEquals(Map.of(), checkpoint.read());
    }

    @Test
    void nothing_is_made_before_the_old_offset_is_forgotten() throws IOException {
        Task task = new Task(directory, false).withChangelog("store");
        Path checkpoint = Files.writeString(directory.resolve(".checkpoint"), "unreadable");
        assertThrows(RuntimeException.class, () -> open(task));
        assertFalse(Files.exists(directory.resolve("kvilt")));
        Files.delete(checkpoint);
        task.renew();
        KviltKeyValueStore store = open(task);
        fill(store);
        store.close();

        // A store of another kind is to be removed: the note comes first, then the offset goes, then the store.
        Files.writeString(checkpoint, "unreadable");
        task.renew();
        assertThrows(
                RuntimeException.class,
                () -> task.open(KviltStores.timestampedKeyValue("store").get()));
        assertTrue(Files.exists(directory.resolve("kvilt.damaged/store")));
        assertTrue(Files.exists(directory.resolve("kvilt/store")));
        Files.delete(checkpoint);
        task.renew();
        store = open(task);
        assertEquals(List.of(), Text.of(store.all()), "what was to be removed is not taken for whole");
        assertFalse(Files.exists(directory.resolve("kvilt.damaged/store")));
        store.close();
    }

    @Test
    void a_store_that_kafka_does_not_register_is_closed() {
        Task task = new Task(directory, true);
        StateStoreContext context = spy(task.context());
        for (Throwable thrown : List.of(new IllegalStateException("not now"), new AssertionError("not now"))) {
            doThrow(thrown).when(context).register(any(), any());
            KviltKeyValueStore store = (KviltKeyValueStore) KviltStores.keyValue("store").get();
            assertEquals("not now", assertThrows(thrown.getClass(), () -> store.init(context, store)).getMessage());
            assertFalse(store.isOpen());
        }
        open(task).close();
    }

    private static RuntimeException corrupted() {
        try {
            var constructor = io.kvilt.KviltException.class.getDeclaredConstructor(
                    io.kvilt.KviltException.Kind.class, String.class);
            constructor.setAccessible(true);
            return constructor.newInstance(io.kvilt.KviltException.Kind.CORRUPTED, "a block does not fit its checksum");
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void a_damaged_store_without_a_changelog_is_left_as_it_is() throws IOException {
        Task task = new Task(directory, false);
        KviltKeyValueStore store = open(task);
        fill(store);
        RuntimeException told = store.storage().failure("read", corrupted());
        assertTrue(told instanceof TaskMigratedException, told::toString);
        store.close();
        task.renew();
        String message = assertThrows(ProcessorStateException.class, () -> open(task)).getMessage();
        assertTrue(message.contains("no changelog") && message.contains("kvilt.damaged"), message);
        assertTrue(Files.isDirectory(directory.resolve("kvilt/store")));
    }

    @Test
    void rows_of_another_kind_of_store_are_not_read_as_ones_own() {
        Task task = new Task(directory, false).withChangelog("store");
        KviltKeyValueStore store = open(task);
        fill(store);
        store.close();
        task.renew();
        KeyValueStore<Bytes, byte[]> timestamped =
                task.open(KviltStores.timestampedKeyValue("store").get());
        assertEquals(List.of(), Text.of(timestamped.all()));
        assertNull(((KviltStore) timestamped).committedOffset(CHANGELOG));
        timestamped.close();
    }

    @Test
    void a_store_of_another_kind_that_is_empty_is_restored_too() {
        Task task = new Task(directory, false).withChangelog("window");
        KviltWindowStore windows = windows(task, Duration.ofMinutes(10));
        windows.put(Task.key("a"), Task.bytes("1"), 0);
        // The window is over, so the store has no row; the changelog has it still.
        windows.put(Task.key("a"), null, Duration.ofHours(1).toMillis());
        windows.commit(Map.of(new TopicPartition("test-window-changelog", 0), 2L));
        assertEquals(0, windows.storage().rows());
        windows.close();

        task.renew();
        windows = windows(task, Duration.ofDays(1));
        assertNull(windows.committedOffset(new TopicPartition("test-window-changelog", 0)));
        assertEquals(-1, windows.storage().streamTime());
        windows.close();
    }

    private static KviltWindowStore windows(Task task, Duration retention) {
        return (KviltWindowStore)
                task.open(KviltStores.window("window", retention, Duration.ofSeconds(1), false).get());
    }

    @Test
    void a_store_of_another_kind_that_has_no_changelog_opens_if_it_is_empty() {
        Task task = new Task(directory, false);
        open(task).close();
        task.renew();
        task.open(KviltStores.timestampedKeyValue("store").get()).close();
    }

    @Test
    void what_kafka_noted_of_a_rocksdb_store_is_not_believed_of_ours() throws IOException {
        Task task = new Task(directory, false).withChangelog("store");
        KeyValueStore<Bytes, byte[]> rocks =
                task.open(Stores.persistentKeyValueStore("store").get());
        rocks.put(Task.key("a"), Task.bytes("1"));
        rocks.close();
        TopicPartition another = new TopicPartition("test-another-changelog", 0);
        OffsetCheckpoint checkpoint = new OffsetCheckpoint(directory.resolve(".checkpoint").toFile());
        checkpoint.write(Map.of(CHANGELOG, 5L, another, 6L));

        task.renew();
        KviltKeyValueStore store = open(task);
        assertEquals(List.of(), Text.of(store.all()));
        assertNull(store.committedOffset(CHANGELOG));
        assertEquals(Map.of(another, 6L), checkpoint.read());
        checkpoint.write(Map.of(CHANGELOG, 5L, another, 6L));
        store.close();

        // The second time it is our own store that the file speaks of.
        task.renew();
        store = open(task);
        assertEquals(Map.of(CHANGELOG, 5L, another, 6L), checkpoint.read());
        store.close();
        assertTrue(new File(directory.toFile(), "rocksdb/store").isDirectory(), "theirs stays");
    }

    @Test
    void a_directory_is_open_once() {
        Task task = new Task(directory, true);
        KviltKeyValueStore store = open(task);
        Task other = new Task(directory, true);
        String message = assertThrows(ProcessorStateException.class, () -> open(other)).getMessage();
        assertTrue(message.contains(directory.toString()), message);
        store.put(Task.key("a"), Task.bytes("1"));
        store.close();
        store = open(other);
        store.close();
    }

    @Test
    void a_record_that_is_no_windows_is_named() {
        Task task = new Task(directory, true).withChangelog("window").withChangelog("session");
        WindowStore<Bytes, byte[]> windows = task.open(
                KviltStores.window("window", Duration.ofMinutes(1), Duration.ofSeconds(1), false).get());
        SessionStore<Bytes, byte[]> sessions =
                task.open(KviltStores.session("session", Duration.ofMinutes(1)).get());
        for (String store : List.of("window", "session")) {
            for (byte[] key : new byte[][] {new byte[3], null}) {
                List<KeyValue<byte[], byte[]>> records = List.of(new KeyValue<>(key, Task.bytes("1")));
                String message = assertThrows(
                                ProcessorStateException.class, () -> task.context().restore(store, records))
                        .getMessage();
                assertTrue(message.contains("offset 0"), message);
            }
        }
        assertFalse(windows.all().hasNext());
        assertFalse(sessions.findSessions(Task.key("a"), 0, 1).hasNext());
        windows.close();
        sessions.close();
    }

    @Test
    void a_record_without_a_key_is_named_and_nothing_of_its_batch_is_restored() {
        Task task = new Task(directory, true).withChangelog("store");
        KviltKeyValueStore store = open(task);
        List<KeyValue<byte[], byte[]>> records =
                List.of(new KeyValue<>(Task.bytes("a"), Task.bytes("1")), new KeyValue<>(null, Task.bytes("2")));
        String message = assertThrows(
                        ProcessorStateException.class, () -> task.context().restore("store", records))
                .getMessage();
        assertTrue(message.contains("offset 0") && message.contains("store store: it has no key"), message);
        assertEquals(List.of(), Text.of(store.all()));
        store.close();
    }

    @Test
    void a_value_that_cannot_be_deserialized_fails_its_own_reads_and_no_others() {
        Task task = new Task(directory, true).withChangelog("store");
        KeyValueStore<String, Long> store = task.open(
                Stores.keyValueStoreBuilder(KviltStores.keyValue("store"), Serdes.String(), Serdes.Long())
                        .withLoggingDisabled()
                        .build());
        task.context().restore("store", List.of(
                new KeyValue<>(Task.bytes("bad"), Task.bytes("123")),
                new KeyValue<>(Task.bytes("good"), new byte[] {0, 0, 0, 0, 0, 0, 0, 7})));
        String message = assertThrows(SerializationException.class, () -> store.get("bad")).getMessage();
        assertTrue(message.contains("LongDeserializer is not 8"), message);
        assertEquals(7, store.get("good"));
        store.put("bad", 8L);
        assertEquals(8, store.get("bad"));
        store.close();
    }

    @Test
    void null_keys_are_refused_and_closed_stores_say_so() {
        Task task = new Task(directory, true);
        KviltKeyValueStore store = open(task);
        List<Executable> withNull = List.of(
                () -> store.put(null, new byte[1]),
                () -> store.putIfAbsent(null, new byte[1]),
                () -> store.putAll(List.of(new KeyValue<>(null, new byte[1]))),
                () -> store.delete(null),
                () -> store.get(null),
                () -> store.prefixScan(null, new ByteArraySerializer()),
                () -> store.prefixScan(new byte[1], null));
        withNull.forEach(call -> assertThrows(NullPointerException.class, call));
        store.close();
        store.close();
        Bytes key = Task.key("a");
        List<Executable> closed = List.of(
                () -> store.put(key, new byte[1]),
                () -> store.putIfAbsent(key, new byte[1]),
                () -> store.putAll(List.of(new KeyValue<>(key, new byte[1]))),
                () -> store.delete(key),
                () -> store.get(key),
                () -> store.range(key, key),
                () -> store.reverseAll(),
                () -> store.prefixScan(new byte[1], new ByteArraySerializer()),
                store::approximateNumEntries);
        closed.forEach(call -> assertThrows(InvalidStateStoreException.class, call));
        // Kafka calls these whenever it likes.
        store.flush();
        store.commit(Map.of());
        assertFalse(store.isOpen());
    }

    @Test
    void settings_that_make_no_sense_are_refused_by_name() {
        Map<String, String> wrong = Map.of(
                KviltConfig.MEMORY_BUDGET_BYTES_CONFIG, "1000",
                KviltConfig.ENGINE_CONFIG, "rocksdb",
                KviltConfig.DURABILITY_CONFIG, "maybe",
                KviltConfig.UNCOMMITTED_BYTES_MAX_CONFIG, "many");
        wrong.forEach((name, value) -> {
            Task task = new Task(directory, true).with(name, value);
            String message = assertThrows(ConfigException.class, () -> open(task)).getMessage();
            assertTrue(message.contains(name), message);
        });
    }

    @Test
    void each_engine_keeps_a_store() {
        for (String engine : List.of("even", "kvell", "teks")) {
            Task task = new Task(directory.resolve(engine), true).with(KviltConfig.ENGINE_CONFIG, engine);
            KviltKeyValueStore store = open(task);
            fill(store);
            store.close();
            task.renew();
            store = open(task);
            assertEquals(2000, Text.of(store.all()).size(), engine);
            store.close();
        }
    }
}
