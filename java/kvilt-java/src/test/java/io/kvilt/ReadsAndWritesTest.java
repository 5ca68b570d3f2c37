package io.kvilt;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** The API, method by method. */
class ReadsAndWritesTest {
    @TempDir
    Path directory;

    private Kvilt db;

    @BeforeEach
    void open() {
        db = Kvilt.open(new Options().setMemoryBudget(64 << 20), directory.resolve("store"));
    }

    @AfterEach
    void close() {
        db.close();
    }

    static byte[] b(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] random(int seed, int length) {
        byte[] bytes = new byte[length];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    private static ByteBuffer direct(byte[] bytes) {
        return ByteBuffer.allocateDirect(bytes.length).put(bytes).flip();
    }

    private static List<String> keys(KviltIterator rows) {
        List<String> keys = new ArrayList<>();
        rows.forEachRemaining((key, value) -> keys.add(new String(key, StandardCharsets.UTF_8)));
        rows.close();
        return keys;
    }

    @Test
    void aValueComesBackAsItWasPutWhateverItsLength() {
        for (int length : new int[] {0, 1, 100, 4000, 4096, 5000, 100_000, Scratch.BYTES_MAX + 1, 3 << 20}) {
            byte[] key = b("key" + length);
            byte[] value = random(length, length);
            db.put(key, value);
            assertArrayEquals(value, db.get(key), () -> length + " bytes");
            assertTrue(db.keyExists(key));
            byte[] room = new byte[length];
            assertEquals(length, db.get(key, room));
            assertArrayEquals(value, room);
            byte[] less = new byte[length / 2];
            assertEquals(length, db.get(key, less));
            assertArrayEquals(Arrays.copyOf(value, length / 2), less);
            db.delete(key);
            assertNull(db.get(key));
            assertFalse(db.keyExists(key));
            assertEquals(KviltReader.NOT_FOUND, db.get(key, room));
        }
    }

    @Test
    void keysMayBeEmptyAndAsLongAsTheLimit() {
        for (byte[] key : List.of(new byte[0], random(1, 64 << 10), random(2, 200))) {
            db.put(key, b("value"));
            assertArrayEquals(b("value"), db.get(key));
            assertTrue(db.keyExists(key));
            try (KviltIterator rows = db.newIterator()) {
                rows.seek(key);
                assertArrayEquals(key, rows.key());
                rows.seekForPrev(key);
                assertArrayEquals(key, rows.key());
            }
            db.delete(key);
            assertNull(db.get(key));
        }
    }

    @Test
    void buffersOfBothKindsGoInAndOut() {
        byte[] key = random(3, 40);
        for (int length : new int[] {0, 300, 200_000}) {
            byte[] value = random(length, length);
            for (int kinds = 0; kinds < 4; kinds++) {
                ByteBuffer k = (kinds & 1) == 0 ? ByteBuffer.wrap(key) : direct(key);
                ByteBuffer v = (kinds & 2) == 0 ? ByteBuffer.wrap(value) : direct(value);
                db.put(k, v);
                assertEquals(0, k.remaining());
                assertEquals(0, v.remaining());
                k.flip();
                ByteBuffer out = (kinds & 2) == 0
                        ? ByteBuffer.allocate(length + 20)
                        : ByteBuffer.allocateDirect(length + 20);
                out.position(7);
                assertEquals(length, db.get(k, out));
                assertEquals(0, k.remaining());
                assertEquals(7, out.position());
                assertEquals(ByteBuffer.wrap(value), out);
                k.flip();
                if (length > 0) {
                    ByteBuffer small = ByteBuffer.allocateDirect(length - 1);
                    assertEquals(length, db.get(k, small));
                    assertEquals(length - 1, small.remaining());
                    k.flip();
                }
                db.delete(k);
                k.flip();
                assertEquals(KviltReader.NOT_FOUND, db.get(k, out));
            }
        }
        ByteBuffer fixed = ByteBuffer.allocateDirect(10).asReadOnlyBuffer();
        assertThrows(ReadOnlyBufferException.class, () -> db.get(direct(key), fixed));
    }

    @Test
    void keyAndValueMayShareADirectBuffersMemory() {
        byte[] bytes = random(5, 16);
        ByteBuffer shared = direct(bytes);
        db.put(shared.slice(0, 8), shared.slice(4, 12));
        assertArrayEquals(Arrays.copyOfRange(bytes, 4, 16), db.get(Arrays.copyOf(bytes, 8)));
        assertEquals(12, db.get(shared.slice(0, 8), shared.duplicate()));
        assertEquals(ByteBuffer.wrap(bytes, 4, 12), shared.slice(0, 12));
    }

    @Test
    @EnabledForJreRange(min = JRE.JAVA_22)
    void memoryOfAClosedArenaIsNotRead() throws ReflectiveOperationException {
        // By reflection, as these classes are compiled for Java 17.
        Class<?> arenas = Class.forName("java.lang.foreign.Arena");
        Object arena = arenas.getMethod("ofConfined").invoke(null);
        Object memory = arenas.getMethod("allocate", long.class).invoke(arena, 1 << 20);
        ByteBuffer buffer = (ByteBuffer)
                Class.forName("java.lang.foreign.MemorySegment").getMethod("asByteBuffer").invoke(memory);
        ByteBuffer other = direct(b("k"));
        db.put(other.duplicate(), buffer.duplicate());
        assertEquals(1 << 20, db.get(other.duplicate(), buffer.duplicate()));
        arenas.getMethod("close").invoke(arena);
        List<Executable> calls = List.of(
                () -> db.put(buffer.duplicate(), other.duplicate()),
                () -> db.put(other.duplicate(), buffer.duplicate()),
                () -> db.get(buffer.duplicate().limit(9), other.duplicate()),
                () -> db.get(other.duplicate(), buffer.duplicate()));
        for (Executable call : calls) {
            assertEquals("Already closed", assertThrows(IllegalStateException.class, call).getMessage());
        }
        assertEquals(1 << 20, db.get(b("k")).length);
        try (WriteBatch batch = new WriteBatch()) {
            ByteBuffer closed = buffer.duplicate().limit(9);
            batch.put(b("a"), b("1"));
            ByteBuffer key = other.duplicate();
            for (Executable call : List.<Executable>of(
                    () -> batch.put(closed, key), () -> batch.put(key, closed), () -> batch.delete(closed))) {
                assertThrows(IllegalStateException.class, call);
            }
            assertEquals(0, key.position());
            assertEquals(1, batch.count());
            assertEquals(2, batch.getDataSize());
            db.write(batch);
        }
        assertArrayEquals(b("1"), db.get(b("a")));
        assertEquals(1 << 20, db.get(b("k")).length);
    }

    @Test
    void batchesAndIteratorsTakeKeysFromBuffers() {
        try (Keyspace keyspace = db.keyspace("buffers");
                WriteBatch batch = new WriteBatch()) {
            ByteBuffer key = direct(b("key1"));
            batch.put(keyspace, key, ByteBuffer.wrap(b("1")));
            batch.put(keyspace, direct(b("key3")), direct(b("3")));
            batch.put(direct(b("key3")), direct(b("default")));
            batch.put(keyspace, b("key5"), b("5"));
            batch.delete(keyspace, direct(b("key5")));
            assertEquals(0, key.remaining());
            db.write(batch);
            try (KviltIterator rows = keyspace.newIterator()) {
                ByteBuffer target = direct(b(".key2.")).position(1).limit(5);
                rows.seek(target);
                assertArrayEquals(b("key3"), rows.key());
                assertEquals(0, target.remaining());
                rows.seekForPrev(ByteBuffer.wrap(b("key2")));
                assertArrayEquals(b("1"), rows.value());
                rows.seek(ByteBuffer.wrap(b("key4")));
                assertFalse(rows.isValid());
            }
        }
        assertArrayEquals(b("default"), db.get(b("key3")));
    }

    @Test
    void partsOfBuffersAreReadFromWhereTheyBegin() {
        ByteBuffer buffer = direct(b("..key..value.."));
        db.put(buffer.slice(2, 3), buffer.slice(7, 5));
        assertArrayEquals(b("value"), db.get(b("key")));
        ByteBuffer heap = ByteBuffer.wrap(b("..key2..value2.."), 2, 4);
        db.put(heap, ByteBuffer.wrap(b("..key2..value2.."), 8, 6));
        assertArrayEquals(b("value2"), db.get(b("key2")));
    }

    @Test
    void manyKeysAreReadAtOnceAndAbsentOnesAreNull() {
        List<byte[]> keys = new ArrayList<>();
        for (int i = 0; i < 2000; i++) {
            keys.add(b("key" + i));
            if (i % 3 != 0) {
                db.put(b("key" + i), random(i, i % 50));
            }
        }
        List<byte[]> values = db.getMany(keys);
        assertEquals(keys.size(), values.size());
        for (int i = 0; i < values.size(); i++) {
            assertArrayEquals(i % 3 == 0 ? null : random(i, i % 50), values.get(i));
        }
        assertEquals(List.of(), db.getMany(List.of()));
    }

    @Test
    void aSwapHappensOnlyIfTheValueIsAsExpected() {
        byte[] key = b("lock");
        assertTrue(db.compareAndSwap(key, null, b("me")));
        assertFalse(db.compareAndSwap(key, null, b("you")));
        assertFalse(db.compareAndSwap(key, b("you"), b("them")));
        assertArrayEquals(b("me"), db.compareAndExchange(key, b("you"), b("them")));
        assertArrayEquals(b("me"), db.compareAndExchange(key, b("me"), b("them")));
        assertArrayEquals(b("them"), db.putIfAbsent(key, b("me")));
        assertTrue(db.compareAndSwap(key, b("them"), null));
        assertNull(db.compareAndExchange(key, b("them"), b("me")));
        assertNull(db.putIfAbsent(key, b("me")));
        assertArrayEquals(b("me"), db.get(key));
    }

    @Test
    void aRangeUnderAPrefixHasTheKeysBehindIt() {
        assertEquals(KeyRange.prefix(b("p")), KeyRange.all().under(b("p")));
        assertEquals(KeyRange.of(b("pb"), b("pd")), KeyRange.of(b("b"), b("d")).under(b("p")));
        assertEquals(KeyRange.of(b("pb"), b("q")), KeyRange.atLeast(b("b")).under(b("p")));
        assertEquals(KeyRange.of(b("p"), b("pb")), KeyRange.lessThan(b("b")).under(b("p")));
        assertEquals(KeyRange.prefix(b("pab")), KeyRange.prefix(b("ab")).under(b("p")));
        assertEquals(KeyRange.atMost(b("b")), KeyRange.atMost(b("b")).under(b("")));
        byte[] high = {-1, -1};
        assertEquals(KeyRange.atLeast(high), KeyRange.all().under(high));
        assertEquals(KeyRange.of(new byte[] {1, -1}, new byte[] {2}), KeyRange.all().under(new byte[] {1, -1}));
    }

    @Test
    void rangesAreDeletedAndScanned() {
        for (String key : List.of("a", "b", "c", "d", "e")) {
            db.put(b(key), b(key));
        }
        assertEquals(List.of("b", "c"), keys(db.scan(KeyRange.of(b("b"), b("d")))));
        assertEquals(List.of("c", "d"), keys(db.scan(KeyRange.of(b("b"), false, b("d"), true))));
        assertEquals(List.of("d", "e"), keys(db.scan(KeyRange.atLeast(b("d")))));
        assertEquals(List.of("e"), keys(db.scan(KeyRange.greaterThan(b("d")))));
        assertEquals(List.of("a"), keys(db.scan(KeyRange.lessThan(b("b")))));
        assertEquals(List.of("a", "b"), keys(db.scan(KeyRange.atMost(b("b")))));
        assertEquals(List.of(), keys(db.scan(KeyRange.of(b("d"), b("b")))));
        assertEquals(List.of("a", "b"), keys(db.scan(KeyRange.lessThan(b("c")), 100)));
        db.deleteRange(b("b"), b("d"));
        assertEquals(List.of("a", "d", "e"), keys(db.scan(KeyRange.all())));
        db.deleteRange(KeyRange.atLeast(b("e")));
        assertEquals(List.of("a", "d"), keys(db.scan(KeyRange.all(), 1)));
        db.deleteRange(b("z"), b("a"));
        db.deleteRange(KeyRange.all());
        assertEquals(List.of(), keys(db.scan(KeyRange.all())));
    }

    @Test
    void aPrefixOfHighBytesHasAnEnd() {
        byte[] high = {(byte) 0xff, (byte) 0xff};
        byte[] mixed = {1, (byte) 0xff};
        for (byte[] key : List.of(high, mixed, new byte[] {2}, new byte[] {1, (byte) 0xff, 5}, new byte[] {1})) {
            db.put(key, key);
        }
        try (KviltIterator rows = db.scan(KeyRange.prefix(mixed))) {
            assertArrayEquals(mixed, rows.value());
            rows.next();
            assertArrayEquals(new byte[] {1, (byte) 0xff, 5}, rows.key());
            rows.next();
            assertFalse(rows.isValid());
        }
        assertTrue(KeyRange.prefix(high).contains(new byte[] {-1, -1, 7}));
        assertFalse(KeyRange.prefix(high).contains(new byte[] {-1, -2}));
        assertEquals(KeyRange.all(), KeyRange.prefix(new byte[0]));
    }

    @Test
    void anIteratorTurnsRoundAnywhereAndEndsAtBothEnds() {
        for (int i = 0; i < 1000; i++) {
            db.put(b(String.format("%04d", i)), random(i, i % 300));
        }
        try (KviltIterator rows = db.newIterator()) {
            assertFalse(rows.isValid());
            assertThrows(NoSuchElementException.class, rows::key);
            assertThrows(NoSuchElementException.class, rows::next);
            rows.seekToLast();
            for (int i = 999; i >= 500; i--, rows.prev()) {
                assertEquals(String.format("%04d", i), new String(rows.key(), StandardCharsets.UTF_8));
            }
            for (int i = 499; i < 1000; i++, rows.next()) {
                assertEquals(String.format("%04d", i), new String(rows.key(), StandardCharsets.UTF_8));
                assertArrayEquals(random(i, i % 300), rows.value());
            }
            assertFalse(rows.isValid());
            rows.seek(b("0100x"));
            assertArrayEquals(b("0101"), rows.key());
            rows.prev();
            assertArrayEquals(b("0100"), rows.key());
            rows.prev();
            rows.next();
            rows.next();
            assertArrayEquals(b("0101"), rows.key());
            rows.seekForPrev(b("0100x"));
            assertArrayEquals(b("0100"), rows.key());
            rows.seekForPrev(b("0100"));
            assertArrayEquals(b("0100"), rows.key());
            rows.seekToFirst();
            rows.prev();
            assertFalse(rows.isValid());
            rows.seek(b("x"));
            assertFalse(rows.isValid());
            rows.seekForPrev(b("."));
            assertFalse(rows.isValid());
            rows.seekForPrev(b("x"));
            assertArrayEquals(b("0999"), rows.key());
            ByteBuffer room = ByteBuffer.allocate(10);
            room.position(2);
            assertEquals(4, rows.key(room));
            assertEquals(ByteBuffer.wrap(b("0999")), room);
            assertEquals(999 % 300, rows.value(ByteBuffer.allocateDirect(10)));
        }
    }

    @Test
    void aRowThatIsLongerThanEachBlockIsRead() {
        byte[] large = random(1, 1 << 20);
        for (String key : List.of("a", "c")) {
            db.put(b(key), b("small"));
        }
        db.put(b("b"), large);
        db.put(random(5, 60_000), random(6, 300_000));
        for (boolean isFirst : new boolean[] {false, true}) {
            if (isFirst) {
                db.delete(b("a"));
            }
            try (KviltIterator rows = db.scan(KeyRange.atLeast(b(isFirst ? "b" : "a")))) {
                if (!isFirst) {
                    rows.next();
                }
                assertArrayEquals(large, rows.value());
                rows.next();
                assertArrayEquals(b("c"), rows.key());
                rows.prev();
                assertArrayEquals(large, rows.value());
            }
        }
        try (KviltIterator rows = db.scanReverse(KeyRange.lessThan(b("c")))) {
            assertArrayEquals(large, rows.value());
        }
    }

    @Test
    void aBatchIsWrittenAsAWholeAndOverKeyspaces() {
        Keyspace other = db.keyspace("other");
        try (WriteBatch batch = new WriteBatch()) {
            batch.put(b("a"), b("1"));
            batch.put(ByteBuffer.wrap(b("b")), direct(b("2")));
            batch.put(other, b("a"), b("3"));
            batch.delete(b("a"));
            assertEquals(4, batch.count());
            assertEquals(7, batch.getDataSize());
            assertNull(db.get(b("b")));
            db.write(batch);
            assertNull(db.get(b("a")));
            assertArrayEquals(b("2"), db.get(b("b")));
            assertArrayEquals(b("3"), other.get(b("a")));
            batch.clear();
            assertTrue(batch.isEmpty());
            db.write(batch);
            batch.delete(other, b("a"));
            batch.delete(ByteBuffer.wrap(b("b")));
            db.write(batch);
            assertNull(other.get(b("a")));
            assertNull(db.get(b("b")));
        }
    }

    @Test
    void keyspacesHaveNamesAndRowsOfTheirOwn() {
        try (Keyspace users = db.keyspace("users")) {
            users.put(b("1"), b("ada"));
            assertNull(db.get(b("1")));
            assertEquals("users", users.name());
            db.keyspace("tags");
            assertEquals(List.of("tags", "users"), db.keyspaces());
            assertTrue(db.dropKeyspace("users"));
            assertFalse(db.dropKeyspace("users"));
            KviltException e = assertThrows(KviltException.class, () -> users.get(b("1")));
            assertTrue(e.getMessage().contains("was dropped"), e.getMessage());
        }
        assertNull(db.keyspace("users").get(b("1")));
    }

    @Test
    void aSnapshotShowsItsMomentInEachKeyspace() {
        Keyspace other = db.keyspace("other");
        db.put(b("k"), b("old"));
        other.put(b("k"), b("old too"));
        try (Snapshot before = db.getSnapshot();
                Snapshot otherBefore = before.keyspace(other);
                Snapshot back = otherBefore.keyspace(db)) {
            db.put(b("k"), b("new"));
            other.delete(b("k"));
            assertArrayEquals(b("old"), before.get(b("k")));
            assertArrayEquals(b("old too"), otherBefore.get(b("k")));
            assertArrayEquals(b("old"), back.get(b("k")));
            assertArrayEquals(b("old"), before.getMany(List.of(b("k"))).get(0));
            assertEquals(List.of("k"), keys(otherBefore.scan(KeyRange.all())));
            assertEquals(List.of(), keys(other.scan(KeyRange.all())));
        }
    }

    @Test
    void aListSaysThatItIsLongerThanAnArrayCanBe() {
        db.put(b("k"), b("v"));
        List<byte[]> list = new AbstractList<>() {
            @Override
            public byte[] get(int i) {
                return b("k");
            }

            @Override
            public int size() {
                return 40_000_000;
            }

            @Override
            public Iterator<byte[]> iterator() {
                return List.of(b("k")).iterator();
            }
        };
        assertArrayEquals(b("v"), db.getMany(list).get(0));
    }

    @Test
    void oneBufferMayBeKeyAndValueOfABatch() {
        ByteBuffer both = ByteBuffer.wrap(b("xsame")).position(1);
        try (WriteBatch batch = new WriteBatch()) {
            batch.put(both, both);
            assertEquals(0, both.remaining());
            db.write(batch);
        }
        assertArrayEquals(b("same"), db.get(b("same")));
    }

    @Test
    void anIteratorShowsTheMomentThatItWasMadeAt() {
        db.put(b("a"), b("1"));
        try (KviltIterator rows = db.newIterator();
                KviltIterator placed = db.scan(KeyRange.all())) {
            db.put(b("b"), b("2"));
            db.delete(b("a"));
            rows.seekToFirst();
            assertEquals(List.of("a"), keys(rows));
            assertEquals(List.of("a"), keys(placed));
        }
    }

    @Test
    void figuresAndCopies() {
        for (int i = 0; i < 1000; i++) {
            db.put(b("k" + i), random(i, 100));
        }
        db.sync();
        Stats stats = db.stats();
        assertEquals(1000, stats.get("puts"));
        assertTrue(stats.memoryBytes() > 0);
        assertEquals(Stats.Unit.BYTES, stats.figures().get("memory_bytes_now").unit());
        assertTrue(stats.figures().get("memory_bytes_now").isGauge());
        assertThrows(IllegalArgumentException.class, () -> stats.get("no such figure"));
        Description description = db.describe();
        assertTrue(description.isExact());
        assertEquals(1000, description.rows());
        assertTrue(description.rowBytes() > 100_000 && description.fileBytes() > 0 && description.chunks() > 0);
        assertEquals(1000, db.describe(true).keyspaces().get(0).rows());
        CheckReport report = db.check();
        assertTrue(report.isSound() && report.files() > 0 && report.bytes() > 0 && report.entries() >= 0);
        Path copy = directory.resolve("copy");
        db.checkpoint(copy);
        db.put(b("k0"), b("after"));
        try (Kvilt other = Kvilt.open(copy)) {
            assertArrayEquals(random(0, 100), other.get(b("k0")));
            assertEquals(Engine.EVEN, other.engine());
            assertEquals(copy, other.path());
        }
    }

    @Test
    void aPanicBecomesAnException() {
        KviltException e = assertThrows(KviltException.class, () -> Native.panic(b("a test panics, wíth ümlauts")));
        assertEquals(KviltException.Kind.BUG, e.kind());
        assertTrue(e.getMessage().contains("a test panics, wíth ümlauts"), e.getMessage());
        db.put(b("k"), b("v"));
        assertArrayEquals(b("v"), db.get(b("k")));
    }

    @Test
    void theLibraryIsFoundByNamesOfSystems() {
        assertEquals("linux-x86_64", NativeLibrary.target("Linux", "amd64"));
        assertEquals("macos-aarch64", NativeLibrary.target("Mac OS X", "aarch64"));
        assertEquals("windows-x86_64", NativeLibrary.target("Windows 11", "x86_64"));
        assertEquals("freebsd-riscv64", NativeLibrary.target("FreeBSD", "riscv64"));
    }
}
