package io.kvilt.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.test.TestRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Versioned stores: beside Kafka's own and a model, and what they do with time. */
class VersionedStoreTest {
    private static final Duration RETENTION = Duration.ofSeconds(60);
    private static final TopicPartition CHANGELOG = new TopicPartition("test-store-changelog", 0);
    private static final QueryConfig PLAIN = new QueryConfig(false);

    /** Where a version has no end, and where a put was too late. */
    private static final long UNDEFINED = VersionedKeyValueStore.PUT_RETURN_CODE_VALID_TO_UNDEFINED;

    private static final long NOT_PUT = VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT;

    @TempDir
    Path directory;

    /** @param uncommittedMax few bytes make stores write before their tasks commit */
    record Case(long seed, boolean isExactlyOnce, long uncommittedMax) {}

    static Stream<Case> cases() {
        return Stream.of(
                new Case(1, false, 64 << 20),
                new Case(2, true, 64 << 20),
                new Case(3, true, 2000),
                new Case(4, true, 0));
    }

    /** All versions that were put, by key: what a store would answer that forgot nothing. */
    private static final class Model {
        final Map<Bytes, NavigableMap<Long, Optional<byte[]>>> keys = new HashMap<>();
        long streamTime = -1;

        NavigableMap<Long, Optional<byte[]>> versions(Bytes key) {
            return keys.computeIfAbsent(key, unknown -> new TreeMap<>());
        }

        boolean isNewest(Bytes key, long timestamp) {
            return !versions(key).isEmpty() && versions(key).lastKey() == timestamp;
        }

        long historyBegin() {
            return streamTime - RETENTION.toMillis();
        }

        long put(Bytes key, byte[] value, long timestamp) {
            if (timestamp < historyBegin()) {
                return NOT_PUT;
            }
            streamTime = Math.max(streamTime, timestamp);
            versions(key).put(timestamp, Optional.ofNullable(value));
            Long next = versions(key).higherKey(timestamp);
            return next == null ? UNDEFINED : next;
        }

        String get(Bytes key, long asOf) {
            Map.Entry<Long, Optional<byte[]>> version = versions(key).floorEntry(asOf);
            boolean isSeen = version != null
                    && version.getValue().isPresent()
                    && (asOf >= historyBegin() || version.getKey().equals(versions(key).lastKey()));
            return isSeen ? told(version) : "null";
        }

        List<String> get(Bytes key, long from, long to, boolean isAscending) {
            List<String> versions = new ArrayList<>();
            versions(key).forEach((timestamp, value) -> {
                Long end = versions(key).higherKey(timestamp);
                boolean wasValid = timestamp <= to && (end == null || end > Math.max(from, historyBegin()));
                if (wasValid && value.isPresent() && (to >= historyBegin() || end == null)) {
                    versions.add(told(Map.entry(timestamp, value)) + "-" + (end == null ? UNDEFINED : end));
                }
            });
            if (!isAscending) {
                Collections.reverse(versions);
            }
            return versions;
        }

        private static String told(Map.Entry<Long, Optional<byte[]>> version) {
            return Text.of(version.getValue().get()) + "@" + version.getKey();
        }
    }

    private static String told(VersionedRecord<byte[]> record) {
        return record == null ? "null" : Text.of(record.value()) + "@" + record.timestamp();
    }

    private static List<String> told(VersionedRecordIterator<byte[]> records) {
        List<String> told = new ArrayList<>();
        try (records) {
            while (records.hasNext()) {
                VersionedRecord<byte[]> record = records.next();
                told.add(told(record) + "-" + record.validTo().orElse(UNDEFINED));
            }
        }
        return told;
    }

    private KviltVersionedStore open(Task task) {
        return task.open(new KviltVersionedStore("store", RETENTION.toMillis(), 2_000));
    }

    private static VersionedKeyValueStore<Bytes, byte[]> theirs(Task task) {
        VersionedKeyValueStore<Bytes, byte[]> store = Stores.versionedKeyValueStoreBuilder(
                        Stores.persistentVersionedKeyValueStore("rocks", RETENTION, Duration.ofSeconds(2)),
                        Serdes.Bytes(),
                        Serdes.ByteArray())
                .withLoggingDisabled()
                .build();
        return task.open(store);
    }

    private static <R> R answer(StateStore store, Query<R> query) {
        QueryResult<R> result = store.query(query, PositionBound.unbounded(), PLAIN);
        assertTrue(result.isSuccess(), () -> result.getFailureMessage());
        return result.getResult();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void versionsAreThoseOfKafkasStoreAndOfAModel(Case how) {
        Task task = new Task(directory.resolve("ours"), how.isExactlyOnce)
                .with(KviltConfig.UNCOMMITTED_BYTES_MAX_CONFIG, how.uncommittedMax);
        KviltVersionedStore ours = open(task);
        VersionedKeyValueStore<Bytes, byte[]> theirs = theirs(new Task(directory.resolve("theirs"), false));
        Model model = new Model();
        Random random = new Random(how.seed);
        byte[] alphabet = {0, 'a', (byte) 0xff};
        long now = 100_000;
        int late = 0;
        for (int step = 0; step < 4000; step++) {
            String at = "at step " + step;
            now += random.nextInt(200);
            byte[] bytes = new byte[1 + random.nextInt(2)];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = alphabet[random.nextInt(alphabet.length)];
            }
            Bytes key = Bytes.wrap(bytes);
            // Sometimes the same again, sometimes long ago, sometimes ahead.
            long time = (now - random.nextInt(70_000) * random.nextInt(2) + random.nextInt(3) * 500) / 500 * 500;
            if (model.isNewest(key, time)) {
                // Kafka forgets a deletion that has the timestamp of the value it deletes, if no other is newer.
                time += 500;
            }
            byte[] value = random.nextInt(4) == 0 ? null : new byte[] {(byte) step, (byte) (step >> 8)};
            switch (random.nextInt(6)) {
                case 0, 1, 2 -> {
                    long expected = model.put(key, value, time);
                    late += expected == NOT_PUT ? 1 : 0;
                    assertEquals(expected, theirs.put(key, value, time), at);
                    assertEquals(expected, ours.put(key, value, time), at);
                }
                case 3 -> {
                    String expected = model.get(key, time);
                    if (time < model.historyBegin()) {
                        expected = "null";
                    } else {
                        model.put(key, null, time);
                    }
                    assertEquals(expected, told(theirs.delete(key, time)), at);
                    assertEquals(expected, told(ours.delete(key, time)), at);
                }
                case 4 -> {
                    String expected = model.get(key, time);
                    assertEquals(expected, told(theirs.get(key, time)), at);
                    assertEquals(expected, told(ours.get(key, time)), at);
                    assertEquals(
                            expected,
                            told(answer(ours, VersionedKeyQuery.<Bytes, byte[]>withKey(key)
                                    .asOf(Instant.ofEpochMilli(time)))),
                            at);
                    assertEquals(model.get(key, Long.MAX_VALUE), told(ours.get(key)), at);
                    assertEquals(told(theirs.get(key)), told(ours.get(key)), at);
                }
                default -> {
                    // Kafka's answer leaves out what is valid beyond the segment of the end; the model's does not.
                    long to = random.nextInt(8) == 0 ? Long.MAX_VALUE : time + random.nextInt(30_000);
                    long from = random.nextInt(8) == 0 ? Long.MIN_VALUE : time;
                    boolean isAscending = random.nextBoolean();
                    MultiVersionedKeyQuery<Bytes, byte[]> query = MultiVersionedKeyQuery.<Bytes, byte[]>withKey(key)
                            .fromTime(Instant.ofEpochMilli(from))
                            .toTime(Instant.ofEpochMilli(to));
                    assertEquals(
                            model.get(key, from, to, isAscending),
                            told(answer(ours, isAscending ? query.withAscendingTimestamps() : query)),
                            at);
                }
            }
            if (random.nextInt(60) == 0) {
                ours.commit(Map.of(CHANGELOG, (long) step));
                if (random.nextInt(4) == 0) {
                    ours.close();
                    task.renew();
                    ours = open(task);
                }
            }
        }
        assertTrue(late > 20, late + " puts were late");
        ours.commit(Map.of(CHANGELOG, 5L));
        long all = model.keys.values().stream().mapToLong(Map::size).sum();
        // A minute of versions, one in 130 ms or so, and their visits; the rest is removed.
        assertTrue(ours.storage().rows() < all, ours.storage().rows() + " rows of " + all + " versions");
        ours.close();
        theirs.close();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void versionsThatCannotBeAskedForAreRemovedThoughTheirKeysAreNotPutAgain(Case how) {
        Task task = new Task(directory, how.isExactlyOnce)
                .with(KviltConfig.UNCOMMITTED_BYTES_MAX_CONFIG, how.uncommittedMax);
        KviltVersionedStore store = open(task);
        for (int i = 0; i < 200; i++) {
            // More than one visit removes, and a key that is deleted in the end.
            store.put(Task.key("many"), new byte[10], i);
            store.put(Task.key("deleted"), new byte[10], i);
            store.put(Task.key("key" + i), new byte[10], i);
        }
        store.delete(Task.key("deleted"), 200);
        store.commit(Map.of(CHANGELOG, 5L));
        assertTrue(store.storage().rows() > 800);

        long later = RETENTION.toMillis() + 10_000;
        for (int i = 0; i < 100; i++) {
            store.put(Task.key("other"), new byte[10], later);
        }
        store.commit(Map.of(CHANGELOG, 6L));
        List<String> rows = Text.of(store.storage().scan(List.of(new Storage.Range(Keys.NONE, null)), false)
                .as(key -> key.length));
        // The newest of 202 keys, and the visit to the last one.
        assertEquals(203, rows.size());
        assertEquals("00000000000000000000@199", told(store.get(Task.key("many"))));
        assertNull(store.get(Task.key("deleted")));
        assertEquals("00000000000000000000@7", told(store.get(Task.key("key7"), 8)));
        store.close();
    }

    @Test
    void aLongerRetentionShowsTheHistoryFromSomeMomentOnAndNoOlderVersions() {
        for (boolean isExactlyOnce : new boolean[] {false, true}) {
            Task task = new Task(directory.resolve("" + isExactlyOnce), isExactlyOnce);
            KviltVersionedStore store = open(task);
            Bytes key = Task.key("a");
            for (int i = 0; i <= 200; i++) {
                store.put(key, Task.bytes("v"), i);
            }
            // One visit, which removes some of the versions.
            store.put(Task.key("b"), Task.bytes("v"), RETENTION.toMillis() + 10_000);
            store.commit(Map.of(CHANGELOG, 5L));
            store.close();
            task.renew();
            store = task.open(new KviltVersionedStore("store", 10 * RETENTION.toMillis(), 2_000));
            assertEquals(5, store.committedOffset(CHANGELOG));
            int gone = 0;
            while (store.get(key, gone) == null) {
                gone++;
            }
            assertTrue(gone > 0 && gone < 200, gone + " versions are gone");
            for (int i = gone; i < 200; i++) {
                VersionedRecord<byte[]> record = store.get(key, i);
                assertEquals(i, record.timestamp());
                assertEquals(i + 1, record.validTo().orElse(UNDEFINED));
            }
            store.close();
        }
    }

    @Test
    void aGetThatWaitsForAPutAsksTheHistoryOfAfterwards() throws Exception {
        KviltVersionedStore store = open(new Task(directory, true));
        Bytes key = Task.key("a");
        for (int i = 0; i <= 200; i++) {
            store.put(key, Task.bytes("v"), i);
        }
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        Thread reader = new Thread(() -> {
            seen.add(told(store.get(key, 100)));
            seen.addAll(told(store.get(key, 100, Long.MAX_VALUE, ResultOrder.ASCENDING)));
        });
        synchronized (store.getPosition()) {
            reader.start();
            while (reader.getState() != Thread.State.BLOCKED) {
                assertTrue(reader.isAlive());
                Thread.onSpinWait();
            }
            store.put(Task.key("b"), Task.bytes("v"), RETENTION.toMillis() + 10_000);
        }
        reader.join();
        assertEquals(List.of("null", "76@200-" + UNDEFINED), seen);
        store.close();
    }

    @Test
    void aVersionThatEndedBeforeTheHistoryIsNotAmongSeveral() {
        KviltVersionedStore ours = open(new Task(directory.resolve("ours"), true));
        VersionedKeyValueStore<Bytes, byte[]> theirs = theirs(new Task(directory.resolve("theirs"), false));
        MultiVersionedKeyQuery<Bytes, byte[]> query = MultiVersionedKeyQuery.<Bytes, byte[]>withKey(Task.key("a"))
                .withAscendingTimestamps();
        List.of(ours, theirs).forEach(store -> {
            store.put(Task.key("a"), Task.bytes("1"), 2_050);
            store.put(Task.key("a"), Task.bytes("2"), 2_100);
            store.put(Task.key("a"), Task.bytes("3"), 2_200);
            store.put(Task.key("b"), Task.bytes("1"), 2_200 + RETENTION.toMillis());
        });
        assertEquals(List.of("33@2200-" + UNDEFINED), told(answer(ours, query)));
        // Kafka's segment that begins at 2000 lives, with the versions that ended in it.
        assertEquals(
                List.of("31@2050-2100", "32@2100-2200", "33@2200-" + UNDEFINED), told(answer(theirs, query)));
        ours.close();
        theirs.close();
    }

    /** What each of some puts takes of the heap, freed or not: it grows with each row that is looked at. */
    private static long bytesPerPut(KviltVersionedStore store, int puts) {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long before = threads.getCurrentThreadAllocatedBytes();
        for (int i = 0; i < puts; i++) {
            store.put(Task.key("other"), Task.bytes("v"), 10 * RETENTION.toMillis());
        }
        return (threads.getCurrentThreadAllocatedBytes() - before) / puts;
    }

    @Test
    void aPutDoesNotLookAtWhatOthersRemovedSinceTheCommit() {
        for (boolean isOneKey : new boolean[] {false, true}) {
            Task task = new Task(directory.resolve("" + isOneKey), true);
            // All of it is one segment. Each put removes the old versions of 4 keys, or 64 of one.
            KviltVersionedStore store =
                    task.open(new KviltVersionedStore("store", RETENTION.toMillis(), RETENTION.toMillis()));
            int versions = isOneKey ? 64 * 400 : 4 * 800;
            for (int i = 0; i < versions; i++) {
                store.put(Task.key(isOneKey ? "a" : "key" + i), Task.bytes("v"), isOneKey ? i : 0);
            }
            store.commit(Map.of(CHANGELOG, 5L));
            long early = bytesPerPut(store, 100);
            bytesPerPut(store, 200);
            long late = bytesPerPut(store, 100);
            assertTrue(late < 2 * early, early + " bytes for each of the first puts, and then " + late);
            store.close();
        }
    }

    @Test
    void aDeletionAtTheTimeOfAValueIsAVersionToo() {
        KviltVersionedStore store = open(new Task(directory, true));
        Bytes key = Task.key("a");
        store.put(key, Task.bytes("1"), 10);
        assertEquals("31@10", told(store.delete(key, 10)));
        assertEquals(10, store.put(key, Task.bytes("2"), 9));
        assertNull(store.get(key));
        assertEquals("32@9", told(store.get(key, 9)));
        store.close();
    }

    @Test
    void aPutOverADeletionThatIsAboutToBeRemovedStays() {
        for (boolean isExactlyOnce : new boolean[] {false, true}) {
            KviltVersionedStore store = open(new Task(directory.resolve("" + isExactlyOnce), isExactlyOnce));
            Bytes key = Task.key("a");
            long begin = 10_000;
            // Keys that the next put visits before it comes to this one.
            List.of("0", "1", "2", "3").forEach(other -> store.put(Task.key(other), Task.bytes("1"), 0));
            store.put(key, Task.bytes("1"), 0);
            store.delete(key, begin);
            store.put(Task.key("b"), Task.bytes("2"), begin + RETENTION.toMillis());
            // Now the history begins with the deletion, and this put removes it.
            store.put(key, Task.bytes("3"), begin);
            assertEquals("33@10000", told(store.get(key, begin)));
            assertEquals("33@10000", told(store.get(key)));
            store.close();
        }
    }

    @Test
    void aCrashLeavesTheVersionsAndTheTimeOfTheLastCommit() {
        Task task = new Task(directory, true);
        KviltVersionedStore store = open(task);
        Bytes key = Task.key("a");
        store.put(key, Task.bytes("1"), 10);
        store.put(key, Task.bytes("2"), 20);
        store.commit(Map.of(CHANGELOG, 5L));
        store.put(key, null, 15);
        store.put(key, Task.bytes("3"), 30);
        // So far ahead that it removes the first version.
        store.put(Task.key("b"), Task.bytes("1"), 1_000_000);
        assertNull(store.get(key, 10));
        assertEquals(NOT_PUT, store.put(key, Task.bytes("4"), 40));

        store.close();
        task.renew();
        store = open(task);
        assertEquals(5, store.committedOffset(CHANGELOG));
        assertNull(store.get(Task.key("b")));
        assertEquals(
                List.of("31@10-20", "32@20-" + UNDEFINED),
                told(answer(store, MultiVersionedKeyQuery.<Bytes, byte[]>withKey(key).withAscendingTimestamps())));
        assertEquals(UNDEFINED, store.put(key, Task.bytes("4"), 40));
        store.close();
    }

    private static ConsumerRecord<byte[], byte[]> record(String key, String value, long timestamp) {
        byte[] bytes = key == null ? null : Task.bytes(key);
        return new ConsumerRecord<>(
                CHANGELOG.topic(), 0, 7, timestamp, TimestampType.CREATE_TIME, 0, 0, bytes,
                value == null ? null : Task.bytes(value), new RecordHeaders(), Optional.empty());
    }

    @Test
    void aStandbyThatOnlyRestoresKeepsNoMoreThanTheHistory() {
        Task task = new Task(directory, true).withChangelog("store");
        KviltVersionedStore store = open(task);
        for (int second = 0; second < 600; second += 10) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                records.add(record("a", "v" + second, (second + i) * 1000L));
                records.add(record("b" + second, i % 2 == 0 ? "v" : null, (second + i) * 1000L));
            }
            task.context().restoreWithHeaders("store", records);
        }
        // Two versions a second for 60 seconds, a visit to each, and segments that are about to be over.
        long rows = store.storage().rows();
        assertTrue(rows < 400, rows + " rows");
        assertEquals("76353930@599000", told(store.get(Task.key("a"))));
        assertEquals("76353530@550000", told(store.get(Task.key("a"), 550_500)));
        assertNull(store.get(Task.key("a"), 530_000));
        String message = assertThrows(
                        ProcessorStateException.class,
                        () -> task.context().restoreWithHeaders("store", List.of(record(null, "v", 1))))
                .getMessage();
        assertTrue(message.contains("offset 7") && message.contains("it has no key"), message);
        store.close();
    }

    @Test
    void aStandbyThatRestoresOneKeyAloneKeepsUp() {
        Task task = new Task(directory, true).withChangelog("store");
        KviltVersionedStore store = open(task);
        for (int batch = 0; batch < 100; batch++) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (int i = 0; i < 500; i++) {
                records.add(record("a", "v", (batch * 500 + i) * 100L));
            }
            task.context().restoreWithHeaders("store", records);
        }
        // Ten versions a second for 60 seconds, and what two batches bring.
        long rows = store.storage().rows();
        assertTrue(rows < 1700, rows + " rows");
        store.close();
    }

    @Test
    void queriesAreBoundByPositionsAndClosedIteratorsSaySo() {
        Task task = new Task(directory, true);
        KviltVersionedStore store = open(task);
        task.context().setRecordContext(new ProcessorRecordContext(0, 7, 0, "input", new RecordHeaders()));
        store.put(Task.key("a"), Task.bytes("1"), 1);
        store.put(Task.key("a"), Task.bytes("2"), 2);
        MultiVersionedKeyQuery<Bytes, byte[]> query = MultiVersionedKeyQuery.withKey(Task.key("a"));
        Position seven = Position.emptyPosition().withComponent("input", 0, 7);
        QueryResult<VersionedRecordIterator<byte[]>> result =
                store.query(query, PositionBound.at(seven), new QueryConfig(true));
        assertEquals(seven, result.getPosition());
        assertEquals(1, result.getExecutionInfo().size());
        VersionedRecordIterator<byte[]> versions = result.getResult();
        // It is one moment.
        store.put(Task.key("a"), Task.bytes("3"), 1);
        assertEquals("32@2", told(versions.next()));
        assertEquals("31@1", told(versions.next()));
        versions.close();
        assertThrows(IllegalStateException.class, versions::hasNext);
        PositionBound later = PositionBound.at(Position.emptyPosition().withComponent("input", 0, 8));
        assertTrue(store.query(query, later, PLAIN).isFailure());
        assertThrows(NullPointerException.class, () -> store.put(null, new byte[1], 3));
        store.close();
        assertThrows(RuntimeException.class, () -> store.get(Task.key("a")));
    }

    @Test
    void rowsOfVersionsThatCannotBeReadAreClosed() {
        Rows rows = mock(Rows.class);
        when(rows.next()).thenThrow(new ProcessorStateException("no such file"));
        assertThrows(ProcessorStateException.class, () -> Versions.ascending(rows, 0, 1));
        verify(rows).close();
    }

    @Test
    void aStreamIsJoinedWithWhatATableHadAtItsTime() {
        StreamsBuilder builder = new StreamsBuilder();
        var prices = builder.table(
                "prices",
                Consumed.with(Serdes.String(), Serdes.String()),
                Materialized.<String, String>as(KviltStores.versionedKeyValue("prices", RETENTION)));
        builder.stream("orders", Consumed.with(Serdes.String(), Serdes.String()))
                .leftJoin(
                        prices,
                        (order, price) -> order + " for " + price,
                        Joined.with(Serdes.String(), Serdes.String(), Serdes.String()))
                .to("bills");
        Task settings = new Task(directory, true);
        settings.with(StreamsConfig.STATE_DIR_CONFIG, directory.toString())
                .with(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class)
                .with(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings.properties)) {
            var prices1 = driver.createInputTopic("prices", new StringSerializer(), new StringSerializer());
            var orders = driver.createInputTopic("orders", new StringSerializer(), new StringSerializer());
            var bills = driver.createOutputTopic("bills", new StringDeserializer(), new StringDeserializer());
            prices1.pipeInput(new TestRecord<>("tea", "3", null, 10_000L));
            prices1.pipeInput(new TestRecord<>("tea", "4", null, 20_000L));
            orders.pipeInput(new TestRecord<>("tea", "late", null, 15_000L));
            orders.pipeInput(new TestRecord<>("tea", "now", null, 25_000L));
            orders.pipeInput(new TestRecord<>("tea", "early", null, 5_000L));
            assertEquals(List.of("late for 3", "now for 4", "early for null"), bills.readValuesToList());
            VersionedKeyValueStore<String, String> store = driver.getVersionedKeyValueStore("prices");
            assertEquals("3", store.get("tea", 12_000).value());
        }
    }
}
