package io.kvilt.flink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.Engine;
import io.kvilt.KeyRange;
import io.kvilt.KviltException;
import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.typeutils.GenericTypeInfo;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.testutils.OneShotLatch;
import org.apache.flink.runtime.checkpoint.CheckpointOptions;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.checkpoint.SavepointType;
import org.apache.flink.runtime.state.CheckpointStreamFactory;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.memory.ByteStreamStateHandle;
import org.apache.flink.runtime.state.memory.MemCheckpointStreamFactory;
import org.apache.flink.runtime.util.BlockerCheckpointStreamFactory;
import org.apache.flink.streaming.api.TimeDomain;
import org.apache.flink.streaming.api.operators.OperatorSnapshotFinalizer;
import org.apache.flink.streaming.api.operators.OperatorSnapshotFutures;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.apache.flink.streaming.util.OneInputStreamOperatorTestHarness;
import org.apache.flink.util.Collector;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What an operator promises beside its rows, and what it says to mistakes. */
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class OperatorTest {
    @TempDir
    Path directory;

    private static byte[] b(String text) {
        return text.getBytes(UTF_8);
    }

    private static void put(Subtasks subtasks, String user, String key, String value) throws Exception {
        subtasks.process(user, (rows, out) -> rows.put(b(key), b(value)));
    }

    /** Keys and values of a user's rows, as {@code k=v}. */
    private static List<String> rowsOf(Subtasks subtasks, String user) throws Exception {
        List<String> found = new ArrayList<>();
        subtasks.process(
                user,
                (rows, out) -> rows.scan(KeyRange.all())
                        .forEachRemaining((key, value) -> found.add(new String(key, UTF_8) + "=" + new String(value, UTF_8))));
        return found;
    }

    private static <X extends Throwable> X thrown(Class<X> kind, Subtasks subtasks, Event.Act act) {
        return assertThrows(kind, () -> subtasks.process("ada", act));
    }

    private String[] left() {
        return directory.toFile().list();
    }

    @Test
    void users_see_their_own_rows_and_nobody_elses() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            put(subtasks, "ada", "b", "1");
            put(subtasks, "adab", "", "2");
            put(subtasks, "", "adab", "3");
            put(subtasks, "ada", "", "4");
            assertEquals(List.of("=4", "b=1"), rowsOf(subtasks, "ada"));
            assertEquals(List.of("=2"), rowsOf(subtasks, "adab"));
            assertEquals(List.of("adab=3"), rowsOf(subtasks, ""));
            subtasks.process("ada", (rows, out) -> rows.deleteRange(KeyRange.all()));
            assertEquals(List.of(), rowsOf(subtasks, "ada"));
            assertEquals(List.of("=2"), rowsOf(subtasks, "adab"));
            assertEquals(List.of("adab=3"), rowsOf(subtasks, ""));
        }
    }

    @Test
    void results_have_the_timestamp_of_their_event() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            subtasks.process("ada", (rows, out) -> out.collect("at " + rows.timestamp()));
            assertEquals(17, subtasks.task(0).extractOutputStreamRecords().get(0).getTimestamp());
            assertEquals(List.of("at 17"), subtasks.output());
            subtasks.task(0).processElement(new StreamRecord<>(Event.of("ada", (rows, out) -> {
                assertNull(rows.timestamp());
                out.collect("no time");
            })));
            assertFalse(subtasks.task(0).extractOutputStreamRecords().get(0).hasTimestamp());
        }
    }

    @Test
    void every_engine_keeps_the_rows_of_every_other() throws Exception {
        OperatorSubtaskState state = null;
        for (Engine engine : Engine.values()) {
            try (var task = harness(operator().setEngine(engine), Types.STRING, Event::user)) {
                task.setup();
                if (state != null) {
                    task.initializeState(state);
                }
                task.open();
                task.processElement(event("ada", (rows, out) -> {
                    byte[] count = rows.get(b("count"));
                    rows.put(b("count"), new byte[] {(byte) (count == null ? 1 : count[0] + 1)});
                    out.collect(String.valueOf(rows.get(b("count"))[0]));
                }));
                assertEquals(List.of(String.valueOf(engine.ordinal() + 1)), task.extractOutputValues());
                state = task.snapshot(1, 1);
            }
        }
    }

    @Test
    void a_snapshot_shows_the_moment_of_its_barrier() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            put(subtasks, "ada", "a", "before");
            put(subtasks, "bob", "b", "before");
            OperatorSnapshotFutures first = snapshot(subtasks, new MemCheckpointStreamFactory(1 << 20));
            put(subtasks, "ada", "a", "after");
            subtasks.process("bob", (rows, out) -> rows.deleteRange(KeyRange.all()));
            OperatorSnapshotFutures second = snapshot(subtasks, new MemCheckpointStreamFactory(1 << 20));
            put(subtasks, "ada", "a", "much later");
            OperatorSubtaskState later = OperatorSnapshotFinalizer.create(second).getJobManagerOwnedState();
            OperatorSubtaskState before = OperatorSnapshotFinalizer.create(first).getJobManagerOwnedState();
            subtasks.restore(before);
            assertEquals(List.of("a=before"), rowsOf(subtasks, "ada"));
            assertEquals(List.of("b=before"), rowsOf(subtasks, "bob"));
            subtasks.restore(later);
            assertEquals(List.of("a=after"), rowsOf(subtasks, "ada"));
            assertEquals(List.of(), rowsOf(subtasks, "bob"));
        }
    }

    @ParameterizedTest
    @EnumSource(SavepointFormatType.class)
    void savepoints_of_both_formats_have_the_rows(SavepointFormatType format) throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            put(subtasks, "ada", "a", "1");
            OperatorSubtaskState savepoint = subtasks.task(0)
                    .snapshotWithLocalState(1, 1, SavepointType.savepoint(format))
                    .getJobManagerOwnedState();
            put(subtasks, "ada", "a", "2");
            subtasks.restore(savepoint);
            assertEquals(List.of("a=1"), rowsOf(subtasks, "ada"));
        }
    }

    @Test
    void no_rows_write_no_state() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 2)) {
            OperatorSubtaskState state = subtasks.checkpoint();
            assertTrue(state.getRawKeyedState().isEmpty());
            put(subtasks, "ada", "a", "1");
            assertEquals(1, subtasks.checkpoint().getRawKeyedState().size());
            subtasks.restore(state);
            assertEquals(List.of(), rowsOf(subtasks, "ada"));
        }
    }

    @Test
    void a_snapshot_that_is_cancelled_ends_and_the_operator_goes_on() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            for (int i = 0; i < 200; i++) {
                String user = "user" + i;
                subtasks.process(user, (rows, out) -> rows.put(b("k"), new byte[10_000]));
            }
            snapshot(subtasks, new MemCheckpointStreamFactory(8 << 20)).cancel();

            // Now in the middle of it.
            BlockerCheckpointStreamFactory streams = new BlockerCheckpointStreamFactory(8 << 20);
            streams.setAfterNumberInvocations(10);
            OneShotLatch isWriting = new OneShotLatch();
            streams.setWaiterLatch(isWriting);
            streams.setBlockerLatch(new OneShotLatch());
            OperatorSnapshotFutures futures = snapshot(subtasks, streams);
            Thread writer = new Thread(futures.getKeyedStateRawFuture());
            writer.start();
            isWriting.await();
            put(subtasks, "ada", "a", "meanwhile");
            futures.cancel();
            writer.join(TimeUnit.SECONDS.toMillis(30));
            assertFalse(writer.isAlive(), "it did not end");
            assertThrows(
                    CancellationException.class,
                    () -> futures.getKeyedStateRawFuture().get(30, TimeUnit.SECONDS));
            assertTrue(streams.getAllCreatedStreams().stream().allMatch(stream -> stream.isClosed()));

            OperatorSubtaskState state = subtasks.checkpoint();
            subtasks.restore(state);
            assertEquals(List.of("a=meanwhile"), rowsOf(subtasks, "ada"));
        }
        assertEquals(0, left().length);
    }

    @Test
    void a_close_ends_a_snapshot_that_is_being_written() throws Exception {
        BlockerCheckpointStreamFactory streams = new BlockerCheckpointStreamFactory(8 << 20);
        Thread writer;
        OperatorSnapshotFutures futures;
        OneShotLatch goOn = new OneShotLatch();
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            for (int i = 0; i < 400; i++) {
                subtasks.process("user" + i, (rows, out) -> rows.put(b("k"), new byte[10_000]));
            }
            streams.setAfterNumberInvocations(10);
            OneShotLatch isWriting = new OneShotLatch();
            streams.setWaiterLatch(isWriting);
            streams.setBlockerLatch(goOn);
            futures = snapshot(subtasks, streams);
            writer = new Thread(futures.getKeyedStateRawFuture());
            writer.start();
            isWriting.await();
        }
        goOn.trigger();
        writer.join(TimeUnit.SECONDS.toMillis(30));
        ExecutionException failure = assertThrows(
                ExecutionException.class, () -> futures.getKeyedStateRawFuture().get(30, TimeUnit.SECONDS));
        assertEquals(IllegalStateException.class, failure.getCause().getClass());
        assertTrue(streams.getAllCreatedStreams().stream().allMatch(stream -> stream.isClosed()));
        assertEquals(0, left().length);
    }

    private OperatorSnapshotFutures snapshot(
            Subtasks subtasks, CheckpointStreamFactory streams) throws Exception {
        return subtasks.task(0)
                .getOperator()
                .snapshotState(7, 7, CheckpointOptions.forCheckpointWithDefaultLocation(), streams);
    }

    /** Fires for the key that set them, also behind a restore. */
    @Test
    void timers_see_the_rows_of_their_key() throws Exception {
        KviltFunction<Event, String> function = new KviltFunction<>() {
            @Override
            public void process(KeyedRows rows, Event event, Collector<String> out) throws Exception {
                event.act().with(rows, out);
            }

            @Override
            public void onTimer(KeyedRows rows, long time, TimeDomain domain, Collector<String> out) {
                assertEquals(time, rows.timestamp());
                out.collect(domain + " " + time + " " + rows.key() + " " + new String(rows.get(b("k")), UTF_8));
            }
        };
        try (Subtasks subtasks = new Subtasks(directory, 2, function)) {
            for (String user : List.of("ada", "bob", "eve")) {
                subtasks.process(user, (rows, out) -> {
                    rows.put(b("k"), b("of " + user));
                    rows.timers().registerEventTimeTimer(user.equals("ada") ? 100 : 200);
                    rows.timers().registerProcessingTimeTimer(50);
                });
            }
            subtasks.watermark(150);
            assertEquals(List.of("EVENT_TIME 100 ada of ada"), subtasks.output());
            subtasks.rescale(3);
            subtasks.watermark(250);
            assertEquals(
                    List.of("EVENT_TIME 200 bob of bob", "EVENT_TIME 200 eve of eve"),
                    subtasks.output().stream().sorted().toList());
            for (int i = 0; i < 3; i++) {
                subtasks.task(i).setProcessingTime(60);
            }
            assertEquals(
                    List.of(
                            "PROCESSING_TIME 50 ada of ada",
                            "PROCESSING_TIME 50 bob of bob",
                            "PROCESSING_TIME 50 eve of eve"),
                    subtasks.output().stream().sorted().toList());
        }
    }

    @Test
    void a_timer_without_an_on_timer_fails() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            subtasks.process("ada", (rows, out) -> rows.timers().registerEventTimeTimer(5));
            Exception refused = assertThrows(Exception.class, () -> subtasks.watermark(10));
            assertTrue(root(refused).getMessage().contains("has no onTimer"), refused.toString());
        }
    }

    private static Throwable root(Throwable thrown) {
        return thrown.getCause() == null ? thrown : root(thrown.getCause());
    }

    @Test
    void exceptions_of_the_function_pass_and_leave_nothing_open() throws Exception {
        KeyedIterator[] left = new KeyedIterator[1];
        KeyedRows[] kept = new KeyedRows[1];
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            IOException own = new IOException("the function's own");
            for (int i = 0; i < 10; i++) {
                put(subtasks, "ada", "k" + i, "v");
            }
            assertSame(own, thrown(IOException.class, subtasks, (rows, out) -> {
                left[0] = rows.scan(KeyRange.all());
                rows.scanReverse(KeyRange.all());
                kept[0] = rows;
                throw own;
            }));
            assertThrows(IllegalStateException.class, () -> left[0].next());
            assertThrows(IllegalStateException.class, () -> left[0].key());
            assertTrue(assertThrows(IllegalStateException.class, () -> kept[0].get(b("k1")))
                    .getMessage()
                    .contains("outside of the call"));
            assertEquals(10, rowsOf(subtasks, "ada").size());
        }
        assertThrows(IllegalStateException.class, () -> kept[0].put(b("k1"), b("")));
        assertEquals(0, left().length);
    }

    @Test
    void mistakes_are_refused() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            thrown(NullPointerException.class, subtasks, (rows, out) -> rows.put(null, b("v")));
            thrown(NullPointerException.class, subtasks, (rows, out) -> rows.put(b("k"), null));
            thrown(NullPointerException.class, subtasks, (rows, out) -> rows.get(null));
            thrown(NullPointerException.class, subtasks, (rows, out) -> rows.delete(null));
            thrown(NullPointerException.class, subtasks, (rows, out) -> rows.scan(null));
            thrown(NullPointerException.class, subtasks, (rows, out) -> rows.newBatch().put(b("k"), null));
            assertEquals(
                    KviltException.Kind.INVALID_ARGUMENT,
                    thrown(KviltException.class, subtasks, (rows, out) -> rows.put(new byte[65_536], b("")))
                            .kind());
            assertThrows(NullPointerException.class, () -> subtasks.process(null, (rows, out) -> {}));
            String long_ = "u".repeat(70_000);
            assertTrue(assertThrows(IllegalArgumentException.class, () -> subtasks.process(long_, (rows, out) -> {}))
                    .getMessage()
                    .contains("65535 is the most"));
            KeyedBatch[] batch = new KeyedBatch[1];
            subtasks.process("ada", (rows, out) -> batch[0] = rows.newBatch());
            thrown(IllegalArgumentException.class, subtasks, (rows, out) -> rows.write(batch[0]));
            assertEquals(List.of(), rowsOf(subtasks, "ada"));
        }
        assertThrows(IllegalArgumentException.class, () -> operator().setMemoryBudget(1000));
        assertThrows(NullPointerException.class, () -> new KviltOperator<>(null));
    }

    @Test
    void longest_keys_and_values_come_back() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            String user = "u".repeat(30_000);
            byte[] key = new byte[65_536 - 4 - 30_003];
            byte[] value = new byte[20 << 20];
            value[value.length - 1] = 7;
            subtasks.process(user, (rows, out) -> rows.put(key, value));
            subtasks.restore(largeCheckpoint(subtasks));
            subtasks.process(user, (rows, out) -> assertArrayEquals(value, rows.get(key)));
        }
    }

    /** The shortest ones, so that blocks and batches have as many as they ever have. */
    @Test
    void many_tiny_rows_come_back() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            int count = 60_000;
            subtasks.process("", (rows, out) -> {
                for (int i = 0; i < count; i++) {
                    rows.put(new byte[] {(byte) (i >> 8), (byte) i}, new byte[0]);
                }
            });
            subtasks.restore(largeCheckpoint(subtasks));
            subtasks.process("", (rows, out) -> {
                int[] found = new int[1];
                rows.scan(KeyRange.all()).forEachRemaining((key, value) -> {
                    assertArrayEquals(new byte[] {(byte) (found[0] >> 8), (byte) found[0]}, key);
                    assertEquals(0, value.length);
                    found[0]++;
                });
                assertEquals(count, found[0]);
            });
        }
    }

    private OperatorSubtaskState largeCheckpoint(Subtasks subtasks) throws Exception {
        return OperatorSnapshotFinalizer.create(snapshot(subtasks, new MemCheckpointStreamFactory(64 << 20)))
                .getJobManagerOwnedState();
    }

    @Test
    void a_stream_that_is_not_keyed_is_refused() throws Exception {
        try (var task = new OneInputStreamOperatorTestHarness<>(operator())) {
            assertTrue(assertThrows(IllegalStateException.class, task::open).getMessage().contains("keyBy"));
        }
        assertEquals(0, left().length);
    }

    /** By Flink, before the operator sees it. */
    @Test
    void a_key_of_another_subtask_is_refused() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 2)) {
            var wrong = subtasks.taskOf("ada") == subtasks.task(0) ? subtasks.task(1) : subtasks.task(0);
            Exception refused =
                    assertThrows(Exception.class, () -> wrong.processElement(event("ada", (rows, out) -> {})));
            assertTrue(root(refused).getMessage().contains("is not in KeyGroupRange"), refused.toString());
        }
    }

    @Test
    void a_directory_that_cannot_be_made_is_named() throws Exception {
        Path file = directory.resolve("file");
        assertTrue(file.toFile().createNewFile());
        try (var task = harness(operator().setDirectory(file.toString()), Types.STRING, Event::user)) {
            Exception refused = assertThrows(Exception.class, task::open);
            assertTrue(refused.toString().contains(file.toString()), refused.toString());
        }
    }

    @Test
    void without_settings_the_store_is_in_the_working_directory_of_the_task_manager() throws Exception {
        try (var task = harness(new KviltOperator<>(Event.OBEY), Types.STRING, Event::user)) {
            File parent = task.getEnvironment().getTaskManagerInfo().getTmpWorkingDirectory();
            task.open();
            assertEquals(1, stores(parent).length);
            task.processElement(event("ada", (rows, out) -> rows.put(b("k"), b("v"))));
            task.close();
            assertEquals(0, stores(parent).length);
        }
    }

    private static String[] stores(File parent) {
        return parent.list((folder, name) -> name.startsWith("kvilt-"));
    }

    @Test
    void damaged_state_is_refused() throws Exception {
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            put(subtasks, "ada", "a", "1");
            OperatorSubtaskState state = subtasks.checkpoint();
            KeyGroupsStateHandle handle =
                    (KeyGroupsStateHandle) state.getRawKeyedState().iterator().next();
            byte[] bytes = handle.getDelegateStateHandle().asBytesIfInMemory().orElseThrow();
            byte[] flipped = bytes.clone();
            flipped[bytes.length - 20] ^= 1;
            assertTrue(restored(handle, flipped).contains("is damaged: the checksum of block 0"), restored(handle, flipped));
            assertTrue(restored(handle, Arrays.copyOf(bytes, bytes.length - 3)).contains("it ends"));
            assertTrue(restored(handle, new byte[bytes.length]).contains("does not begin as Kvilt's"));
        }
        assertEquals(0, left().length);
    }

    /** What is said to a restore of such bytes. */
    private String restored(KeyGroupsStateHandle handle, byte[] bytes) throws Exception {
        KeyedStateHandle damaged =
                new KeyGroupsStateHandle(handle.getGroupRangeOffsets(), new ByteStreamStateHandle("damaged", bytes));
        OperatorSubtaskState state =
                OperatorSubtaskState.builder().setRawKeyedState(damaged).build();
        try (var task = harness(operator(), Types.STRING, Event::user)) {
            return assertThrows(IOException.class, () -> task.initializeState(state)).getMessage();
        }
    }

    /** By Flink, as the timers' state beside the rows says how keys are serialized. */
    @Test
    void keys_of_another_type_are_refused() throws Exception {
        OperatorSubtaskState state;
        try (Subtasks subtasks = new Subtasks(directory, 1)) {
            put(subtasks, "12", "a", "1");
            state = subtasks.checkpoint();
        }
        try (var task = harness(operator(), Types.LONG, event -> Long.valueOf(event.user()))) {
            Exception refused = assertThrows(Exception.class, () -> task.initializeState(state));
            assertTrue(root(refused).getMessage().contains("The new key serializer"), refused.toString());
        }
        assertEquals(0, left().length);
    }

    /** Flink looks at its limit when all is in memory. */
    @Test
    void a_checkpoint_in_memory_that_grows_ends() throws Exception {
        try (var task = harness(operator(), Types.STRING, Event::user)) {
            task.open();
            task.processElement(event("ada", (rows, out) -> {
                for (int i = 0; i < 5; i++) {
                    rows.put(new byte[] {(byte) i}, new byte[12 << 20]);
                }
            }));
            Exception ended = assertThrows(Exception.class, () -> task.snapshot(1, 1));
            assertTrue(root(ended).getMessage().contains("execution.checkpointing.dir"), ended.toString());
        }
    }

    /** To Flink they are one key, and would be two here. */
    @Test
    void of_equal_keys_with_different_bytes_one_is_refused() throws Exception {
        KeySelector<Event, Set<String>> key = event -> new LinkedHashSet<>(List.of(event.user().split("")));
        List<String> refused = new ArrayList<>();
        try (var task = harness(operator(), Types.SET(Types.STRING), key)) {
            task.open();
            for (String user : List.of("ab", "ba")) {
                try {
                    task.processElement(event(user, (rows, out) -> rows.put(b(user), b("1"))));
                } catch (IllegalArgumentException e) {
                    assertTrue(e.getMessage().contains("no set or map"), e.getMessage());
                    refused.add(user);
                }
            }
        }
        assertEquals(1, refused.size());
    }

    /** A key as programs have them that Flink serializes by Kryo. */
    record Name(Object text) {}

    /** Flink finds that the old bytes can be read, and not that new ones are others. */
    @Test
    void keys_that_are_not_written_as_they_were_are_refused() throws Exception {
        TypeInformation<Name> type = new GenericTypeInfo<>(Name.class);
        KeySelector<Event, Name> key = event -> new Name(new Part(event.user()));
        OperatorSubtaskState state;
        try (var task = harness(operator(), type, key)) {
            task.open();
            task.processElement(event("ada", (rows, out) -> rows.put(b("k"), b("1"))));
            state = task.snapshot(1, 1);
        }
        TypeInformation<Name> registered = new GenericTypeInfo<>(Name.class) {
            @Override
            public TypeSerializer<Name> createSerializer(SerializerConfig config) {
                SerializerConfigImpl own = new SerializerConfigImpl();
                own.registerKryoType(Part.class);
                return super.createSerializer(own);
            }
        };
        try (var task = harness(operator(), registered, key)) {
            Exception refused = assertThrows(Exception.class, () -> task.initializeState(state));
            assertTrue(root(refused).getMessage().contains("is not written as it was"), refused.toString());
        }
        assertEquals(0, left().length);
    }

    /** A part of a key whose class may be registered or not. */
    record Part(String text) {}

    private KviltOperator<Event, String> operator() {
        return new KviltOperator<>(Event.OBEY).setDirectory(directory.toString()).setMemoryBudget(16 << 20);
    }

    private static <K> KeyedOneInputStreamOperatorTestHarness<K, Event, String> harness(
            KviltOperator<Event, String> operator, TypeInformation<K> type, KeySelector<Event, K> key) throws Exception {
        return new KeyedOneInputStreamOperatorTestHarness<>(operator, key, type, Subtasks.GROUPS, 1, 0);
    }

    private static StreamRecord<Event> event(String user, Event.Act act) {
        return new StreamRecord<>(Event.of(user, act));
    }
}
