package io.kvilt;

import static io.kvilt.ReadsAndWritesTest.b;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Closing: use after it, beside readers, with things open, and by nobody. */
class CloseTest {
    @TempDir
    Path directory;

    private Kvilt open(Engine engine) {
        Options options = new Options().setEngine(engine).setMemoryBudget(64 << 20);
        return Kvilt.open(options, directory.resolve("store"));
    }

    private static Map<String, Executable> reads(KviltReader reader) {
        Map<String, Executable> calls = new LinkedHashMap<>();
        ByteBuffer direct = ByteBuffer.allocateDirect(8);
        calls.put("get", () -> reader.get(b("k")));
        calls.put("get of a long key", () -> reader.get(new byte[100_000]));
        calls.put("get into an array", () -> reader.get(b("k"), new byte[9]));
        calls.put("get by buffers", () -> reader.get(direct.duplicate(), direct.duplicate()));
        calls.put("get by heap buffers", () -> reader.get(ByteBuffer.allocate(1), ByteBuffer.allocate(1)));
        calls.put("keyExists", () -> reader.keyExists(b("k")));
        calls.put("getMany", () -> reader.getMany(List.of(b("k"))));
        calls.put("newIterator", () -> reader.newIterator());
        calls.put("scan", () -> reader.scan(KeyRange.all()));
        calls.put("scanReverse", () -> reader.scanReverse(KeyRange.all(), 5));
        return calls;
    }

    private static Map<String, Executable> writes(KviltWriter writer) {
        Map<String, Executable> calls = reads(writer);
        ByteBuffer direct = ByteBuffer.allocateDirect(8);
        calls.put("put", () -> writer.put(b("k"), b("v")));
        calls.put("put of a long value", () -> writer.put(b("k"), new byte[1 << 20]));
        calls.put("put by buffers", () -> writer.put(direct.duplicate(), direct.duplicate()));
        calls.put("put by heap buffers", () -> writer.put(ByteBuffer.allocate(1), ByteBuffer.allocate(1)));
        calls.put("delete", () -> writer.delete(b("k")));
        calls.put("delete by a buffer", () -> writer.delete(direct.duplicate()));
        calls.put("delete of a long key", () -> writer.delete(new byte[100_000]));
        calls.put("deleteRange", () -> writer.deleteRange(b("a"), b("b")));
        calls.put("deleteRange of a range", () -> writer.deleteRange(KeyRange.all()));
        calls.put("compareAndSwap", () -> writer.compareAndSwap(b("k"), null, b("v")));
        calls.put("compareAndExchange", () -> writer.compareAndExchange(b("k"), null, b("v")));
        calls.put("putIfAbsent", () -> writer.putIfAbsent(b("k"), b("v")));
        calls.put("getSnapshot", () -> writer.getSnapshot());
        return calls;
    }

    private static Map<String, Executable> moves(KviltIterator rows) {
        Map<String, Executable> calls = new LinkedHashMap<>();
        calls.put("isValid", rows::isValid);
        calls.put("next", rows::next);
        calls.put("prev", rows::prev);
        calls.put("seek", () -> rows.seek(b("k")));
        calls.put("seekForPrev", () -> rows.seekForPrev(b("k")));
        calls.put("seekToFirst", rows::seekToFirst);
        calls.put("seekToLast", rows::seekToLast);
        calls.put("key", rows::key);
        calls.put("value", rows::value);
        calls.put("key to a buffer", () -> rows.key(ByteBuffer.allocate(9)));
        calls.put("value to a buffer", () -> rows.value(ByteBuffer.allocate(9)));
        calls.put("forEachRemaining", () -> rows.forEachRemaining((k, v) -> {}));
        return calls;
    }

    private static void allThrow(String what, Map<String, Executable> calls) {
        calls.forEach((name, call) -> {
            IllegalStateException e =
                    assertThrows(IllegalStateException.class, call, () -> what + ": " + name + " after close");
            assertTrue(e.getMessage().contains("closed"), e.getMessage());
        });
    }

    @ParameterizedTest
    @EnumSource(Engine.class)
    void afterTheCloseOfAStoreEveryMethodOfEveryClassThrows(Engine engine) {
        Kvilt db = open(engine);
        for (int i = 0; i < 1000; i++) {
            db.put(b("key" + i), new byte[100]);
        }
        Keyspace keyspace = db.keyspace("other");
        Snapshot snapshot = db.getSnapshot();
        KviltIterator whole = db.scan(KeyRange.prefix(b("key77")));
        KviltIterator part = snapshot.scan(KeyRange.all());
        KviltIterator unplaced = keyspace.newIterator();
        WriteBatch batch = new WriteBatch();
        batch.put(keyspace, b("k"), b("v"));
        assertTrue(whole.isValid() && part.isValid() && db.isOpen() && snapshot.isOpen());
        db.close();
        assertFalse(db.isOpen() || snapshot.isOpen() || keyspace.isOpen());
        allThrow("Kvilt", writes(db));
        allThrow("Keyspace", writes(keyspace));
        allThrow("Snapshot", reads(snapshot));
        allThrow("Snapshot", Map.of("keyspace", () -> snapshot.keyspace(keyspace)));
        for (KviltIterator rows : List.of(whole, part, unplaced)) {
            allThrow("KviltIterator", moves(rows));
        }
        allThrow(
                "Kvilt",
                Map.of(
                        "write", () -> db.write(batch),
                        "keyspace", () -> db.keyspace("other"),
                        "keyspaces", db::keyspaces,
                        "dropKeyspace", () -> db.dropKeyspace("other"),
                        "sync", db::sync,
                        "checkpoint", () -> db.checkpoint(directory.resolve("copy")),
                        "stats", db::stats,
                        "describe", db::describe,
                        "check", db::check,
                        "engine", db::engine));
        List.of(db, keyspace, snapshot).forEach(KviltReader::close);
        List.of(whole, part, unplaced).forEach(KviltIterator::close);
        try (Kvilt again = open(engine)) {
            assertArrayEquals(new byte[100], again.get(b("key5")));
        }
    }

    @Test
    void eachObjectMayBeClosedAloneAndTheOthersGoOn() {
        try (Kvilt db = open(Engine.EVEN)) {
            for (int i = 0; i < 1000; i++) {
                db.put(b("key" + i), new byte[100]);
            }
            Keyspace keyspace = db.keyspace("other");
            keyspace.put(b("k"), b("v"));
            Snapshot snapshot = keyspace.getSnapshot();
            KviltIterator rows = db.scan(KeyRange.all());
            KviltIterator short_ = snapshot.scan(KeyRange.all());
            keyspace.close();
            allThrow("Keyspace", writes(keyspace));
            WriteBatch batch = new WriteBatch();
            assertThrows(IllegalStateException.class, () -> batch.put(keyspace, b("k"), b("v")));
            assertArrayEquals(b("v"), snapshot.get(b("k")));
            snapshot.close();
            allThrow("Snapshot", reads(snapshot));
            assertArrayEquals(b("v"), short_.value());
            short_.close();
            allThrow("KviltIterator", moves(short_));
            rows.seekToLast();
            assertTrue(rows.isValid());
            rows.close();
            rows.close();
            allThrow("KviltIterator", moves(rows));
            batch.put(b("k"), b("v"));
            batch.close();
            allThrow(
                    "WriteBatch",
                    Map.of(
                            "put", () -> batch.put(b("k"), b("v")),
                            "put by buffers", () -> batch.put(ByteBuffer.allocate(1), ByteBuffer.allocate(1)),
                            "delete", () -> batch.delete(b("k")),
                            "delete by a buffer", () -> batch.delete(ByteBuffer.allocate(1)),
                            "count", batch::count,
                            "getDataSize", batch::getDataSize,
                            "isEmpty", batch::isEmpty,
                            "clear", batch::clear,
                            "write", () -> db.write(batch)));
            assertEquals(List.of("other"), db.keyspaces());
        }
        Env env = new Env(8 << 20);
        assertEquals(8 << 20, env.memoryBudget());
        assertTrue(env.memoryUsed() >= 0);
        env.close();
        env.close();
        allThrow(
                "Env",
                Map.of(
                        "memoryBudget", env::memoryBudget,
                        "memoryUsed", env::memoryUsed,
                        "open", () -> Kvilt.open(new Options().setEnv(env), directory.resolve("other"))));
    }

    @ParameterizedTest
    @EnumSource(Engine.class)
    void aCloseBesideReadersAndWritersEndsThemAndTheDirectoryIsFreeAtOnce(Engine engine) throws Exception {
        Queue<Throwable> failures = new ConcurrentLinkedQueue<>();
        AtomicLong calls = new AtomicLong();
        for (int round = 0; round < 25; round++) {
            Kvilt db = open(engine);
            for (int i = 0; i < 500; i++) {
                db.put(b("key" + i), new byte[i]);
            }
            Phaser begun = new Phaser(1);
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < 6; t++) {
                begun.register();
                Random random = new Random(100 * round + t);
                Thread thread = new Thread(() -> {
                    begun.arriveAndDeregister();
                    try {
                        while (true) {
                            use(db, random);
                            calls.incrementAndGet();
                        }
                    } catch (IllegalStateException e) {
                        // As it should be.
                    } catch (Throwable e) {
                        failures.add(e);
                    }
                });
                threads.add(thread);
                thread.start();
            }
            begun.awaitAdvance(begun.arrive());
            long enough = calls.get() + round * 20;
            while (calls.get() < enough && failures.isEmpty()) {
                Thread.onSpinWait();
            }
            db.close();
            open(engine).close();
            for (Thread thread : threads) {
                thread.join();
            }
            failures.forEach(Throwable::printStackTrace);
            assertEquals(0, failures.size());
        }
        assertTrue(calls.get() > 1000);
    }

    private static void use(Kvilt db, Random random) {
        byte[] key = b("key" + random.nextInt(500));
        switch (random.nextInt(7)) {
            case 0 -> db.put(key, new byte[random.nextInt(500)]);
            case 1 -> {
                try (Snapshot snapshot = db.getSnapshot()) {
                    snapshot.get(key);
                }
            }
            case 2 -> {
                try (KviltIterator rows = db.scan(KeyRange.atLeast(key))) {
                    for (int i = 0; i < 50 && rows.isValid(); i++, rows.next()) {
                        rows.value();
                    }
                }
            }
            case 3 -> {
                try (WriteBatch batch = new WriteBatch()) {
                    batch.put(key, key);
                    batch.delete(b("key1"));
                    db.write(batch);
                }
            }
            case 4 -> db.getMany(List.of(key, b("key1"), b("key2")));
            case 5 -> db.stats();
            default -> db.get(key);
        }
    }

    @Test
    void anIteratorMayBeClosedByAnotherThreadWhileItIsRead() throws Exception {
        try (Kvilt db = open(Engine.EVEN)) {
            for (int i = 0; i < 20_000; i++) {
                db.put(b(String.format("%06d", i)), b(String.format("%06d", i)));
            }
            for (int round = 0; round < 200; round++) {
                KviltIterator rows = db.scan(KeyRange.all());
                CountDownLatch begun = new CountDownLatch(1);
                Queue<Throwable> failures = new ConcurrentLinkedQueue<>();
                Thread reader = new Thread(() -> {
                    try {
                        for (int i = 0; ; i++, rows.next()) {
                            if (!rows.isValid()) {
                                rows.seekToFirst();
                                i = 0;
                            }
                            assertArrayEquals(rows.key(), rows.value());
                            if (i == 100) {
                                begun.countDown();
                            }
                        }
                    } catch (IllegalStateException e) {
                        // As it should be.
                    } catch (Throwable e) {
                        failures.add(e);
                        begun.countDown();
                    }
                });
                reader.start();
                begun.await();
                rows.close();
                // What reads meanwhile must not get the block of the other one.
                try (KviltIterator others = db.scan(KeyRange.all())) {
                    others.seekToLast();
                    assertTrue(others.isValid());
                }
                reader.join();
                failures.forEach(Throwable::printStackTrace);
                assertEquals(0, failures.size());
            }
        }
    }

    @Test
    void twoThreadsThatAskOneIteratorAtOnceAreToldSo() {
        try (Kvilt db = open(Engine.EVEN)) {
            for (int i = 0; i < 1000; i++) {
                db.put(b("key" + i), new byte[100]);
            }
            try (KviltIterator rows = db.newIterator()) {
                // As if another thread were in the middle of it.
                rows.begin();
                for (Executable call : List.<Executable>of(
                        rows::seekToFirst, rows::seekToLast, () -> rows.seek(b("k")), () -> rows.seekForPrev(b("k")))) {
                    assertThrows(ConcurrentModificationException.class, call);
                }
                rows.end();
                rows.seekToFirst();
                assertArrayEquals(b("key0"), rows.key());
                rows.begin();
                assertThrows(ConcurrentModificationException.class, () -> rows.forEachRemaining((key, value) -> {}));
                rows.end();
                int left = 0;
                for (; rows.isValid(); rows.next()) {
                    left++;
                }
                assertTrue(0 < left && left < 1000, "the rest begins where the first block ends");
            }
        }
    }

    @Test
    void whatNobodyClosedIsReportedAndClosed() throws Exception {
        Queue<String> told = new ConcurrentLinkedQueue<>();
        CountDownLatch parts = new CountDownLatch(3);
        CountDownLatch all = new CountDownLatch(4);
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord entry) {
                if (!entry.getMessage().contains(directory.toString())) {
                    // Of another class, whose tests run at the same time.
                    return;
                }
                told.add(entry.getMessage());
                parts.countDown();
                all.countDown();
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        Logger logger = Logger.getLogger("io.kvilt");
        logger.addHandler(handler);
        logger.setUseParentHandlers(false);
        try {
            Kvilt db = forgetParts();
            collectUntil(parts, told);
            for (String what : List.of("a snapshot of", "an iterator of", "the keyspace `x`")) {
                assertTrue(told.stream().anyMatch(text -> text.startsWith(what)), what + " in " + told);
            }
            assertTrue(db.isOpen());
            db = null;
            collectUntil(all, told);
            assertTrue(told.stream().anyMatch(text -> text.startsWith("the store ")), told::toString);
            // Closed as if it had been by hand: the directory is free once the report of the store is out.
            Kvilt again = null;
            while (again == null) {
                try {
                    again = open(Engine.EVEN);
                } catch (KviltException e) {
                    assertEquals(KviltException.Kind.BUSY, e.kind());
                    Thread.onSpinWait();
                }
            }
            assertArrayEquals(new byte[100], again.get(b("key7")));
            again.close();
        } finally {
            logger.removeHandler(handler);
            logger.setUseParentHandlers(true);
        }
    }

    /** A collection may be asked for, not ordered, so it is asked for until it has come. */
    private static void collectUntil(CountDownLatch latch, Queue<String> told) throws InterruptedException {
        long end = System.nanoTime() + Duration.ofMinutes(4).toNanos();
        while (!latch.await(20, TimeUnit.MILLISECONDS)) {
            assertTrue(System.nanoTime() < end, told::toString);
            System.gc();
        }
    }

    /** A store of which parts were opened, and not closed. */
    private Kvilt forgetParts() {
        Kvilt db = open(Engine.EVEN);
        for (int i = 0; i < 1000; i++) {
            db.put(b("key" + i), new byte[100]);
        }
        db.keyspace("x");
        db.getSnapshot();
        db.scan(KeyRange.all()).next();
        return db;
    }
}
