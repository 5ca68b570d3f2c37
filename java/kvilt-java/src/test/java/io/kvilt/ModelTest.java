package io.kvilt;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Random operations on a store and on a {@link TreeMap}, which must agree; also at moments of before. */
class ModelTest {
    private static final int OPERATIONS = 12_000;
    private static final int SNAPSHOTS_MAX = 4;

    @TempDir
    Path directory;

    private record Moment(Snapshot snapshot, NavigableMap<byte[], byte[]> rows) {}

    private final TreeMap<byte[], byte[]> model = new TreeMap<>(Arrays::compareUnsigned);
    private final List<Moment> moments = new ArrayList<>();
    private Random random;

    @ParameterizedTest
    @EnumSource(Engine.class)
    void aStoreIsASortedMap(Engine engine) {
        long seed = Long.getLong("kvilt.seed", System.nanoTime());
        random = new Random(seed);
        Options options = new Options().setEngine(engine).setMemoryBudget(32 << 20);
        Path path = directory.resolve("store");
        try {
            Kvilt db = Kvilt.open(options, path);
            for (int i = 0; i < OPERATIONS; i++) {
                if (i % (OPERATIONS / 3) == OPERATIONS / 3 - 1) {
                    closeMoments();
                    db.close();
                    db = Kvilt.open(options, path);
                }
                step(db);
            }
            compare(db, model);
            closeMoments();
            db.close();
        } catch (RuntimeException | AssertionError e) {
            throw new AssertionError("engine " + engine + "; repeat it by -Dkvilt.seed=" + seed, e);
        }
    }

    private void step(Kvilt db) {
        byte[] key = key();
        switch (random.nextInt(24)) {
            case 0, 1, 2, 3, 4, 5 -> {
                byte[] value = value();
                db.put(key, value);
                model.put(key, value);
            }
            case 6 -> {
                byte[] value = value();
                ByteBuffer buffer = ByteBuffer.allocateDirect(key.length + value.length).put(key).put(value);
                db.put(buffer.slice(0, key.length), buffer.slice(key.length, value.length));
                model.put(key, value);
            }
            case 7, 8 -> {
                db.delete(key);
                model.remove(key);
            }
            case 9 -> {
                byte[] to = key();
                if (random.nextInt(10) == 0) {
                    db.deleteRange(key, to);
                    if (Arrays.compareUnsigned(key, to) < 0) {
                        model.subMap(key, to).clear();
                    }
                }
            }
            case 10, 11 -> batch(db);
            case 12 -> {
                byte[] expected = random.nextBoolean() ? model.get(key) : value();
                byte[] update = random.nextInt(4) == 0 ? null : value();
                boolean isSame = Arrays.equals(expected, model.get(key));
                assertEquals(isSame, db.compareAndSwap(key, expected, update));
                if (isSame) {
                    if (update == null) {
                        model.remove(key);
                    } else {
                        model.put(key, update);
                    }
                }
            }
            case 13, 14 -> assertArrayEquals(model.get(key), db.get(key));
            case 15 -> {
                List<byte[]> keys = List.of(key, key(), key(), key());
                List<byte[]> values = db.getMany(keys);
                for (int i = 0; i < keys.size(); i++) {
                    assertArrayEquals(model.get(keys.get(i)), values.get(i));
                }
            }
            case 16 -> {
                if (moments.size() == SNAPSHOTS_MAX) {
                    moments.remove(random.nextInt(SNAPSHOTS_MAX)).snapshot.close();
                }
                moments.add(new Moment(db.getSnapshot(), new TreeMap<>(model)));
            }
            case 17, 18 -> {
                if (!moments.isEmpty()) {
                    Moment moment = moments.get(random.nextInt(moments.size()));
                    assertArrayEquals(moment.rows.get(key), moment.snapshot.get(key));
                    walk(moment.snapshot, moment.rows);
                }
            }
            case 19 -> {
                if (random.nextInt(40) == 0) {
                    compare(db, model);
                }
            }
            default -> walk(db, model);
        }
    }

    private void batch(Kvilt db) {
        try (WriteBatch batch = new WriteBatch()) {
            for (int i = random.nextInt(20); i > 0; i--) {
                byte[] key = key();
                if (random.nextInt(3) == 0) {
                    batch.delete(key);
                    model.remove(key);
                } else {
                    byte[] value = value();
                    batch.put(key, value);
                    model.put(key, value);
                }
            }
            db.write(batch);
        }
    }

    /** Goes to and fro in some range. */
    private void walk(KviltReader reader, NavigableMap<byte[], byte[]> rows) {
        KeyRange range = range();
        NavigableMap<byte[], byte[]> wanted = new TreeMap<>(Arrays::compareUnsigned);
        wanted.putAll(rows.tailMap(range.from, true));
        if (range.to != null) {
            wanted = new TreeMap<>(wanted.headMap(range.to, false));
        }
        boolean isPlaced = random.nextBoolean();
        boolean isReverse = random.nextBoolean();
        int hint = random.nextInt(3) * 20;
        try (KviltIterator at = !isPlaced
                ? reader.newIterator(range)
                : isReverse ? reader.scanReverse(range, hint) : reader.scan(range, hint)) {
            Map.Entry<byte[], byte[]> entry =
                    !isPlaced ? null : isReverse ? wanted.lastEntry() : wanted.firstEntry();
            same(entry, at);
            for (int steps = random.nextInt(60); steps > 0; steps--) {
                switch (random.nextInt(entry == null ? 4 : 40)) {
                    case 0 -> {
                        at.seekToFirst();
                        entry = wanted.firstEntry();
                    }
                    case 1 -> {
                        at.seekToLast();
                        entry = wanted.lastEntry();
                    }
                    case 2 -> {
                        byte[] target = key();
                        at.seek(target);
                        entry = wanted.ceilingEntry(target);
                    }
                    case 3 -> {
                        byte[] target = key();
                        at.seekForPrev(target);
                        entry = wanted.floorEntry(target);
                    }
                    default -> {
                        if (random.nextInt(5) == 0) {
                            isReverse = !isReverse;
                        }
                        if (isReverse) {
                            at.prev();
                            entry = wanted.lowerEntry(entry.getKey());
                        } else {
                            at.next();
                            entry = wanted.higherEntry(entry.getKey());
                        }
                    }
                }
                same(entry, at);
            }
        }
    }

    private static void same(Map.Entry<byte[], byte[]> entry, KviltIterator at) {
        assertEquals(entry != null, at.isValid());
        if (entry != null) {
            assertArrayEquals(entry.getKey(), at.key());
            assertArrayEquals(entry.getValue(), at.value());
        }
    }

    private static void compare(KviltReader reader, NavigableMap<byte[], byte[]> rows) {
        for (boolean isReverse : new boolean[] {false, true}) {
            NavigableMap<byte[], byte[]> wanted = isReverse ? rows.descendingMap() : rows;
            try (KviltIterator at =
                    isReverse ? reader.scanReverse(KeyRange.all()) : reader.scan(KeyRange.all())) {
                for (Map.Entry<byte[], byte[]> entry : wanted.entrySet()) {
                    same(entry, at);
                    if (isReverse) {
                        at.prev();
                    } else {
                        at.next();
                    }
                }
                assertEquals(false, at.isValid());
            }
        }
    }

    private KeyRange range() {
        return switch (random.nextInt(6)) {
            case 0 -> KeyRange.all();
            case 1 -> KeyRange.atLeast(key());
            case 2 -> KeyRange.of(key(), random.nextBoolean(), key(), random.nextBoolean());
            case 3 -> KeyRange.atMost(key());
            default -> {
                byte[] key = key();
                yield KeyRange.prefix(Arrays.copyOf(key, random.nextInt(key.length + 1)));
            }
        };
    }

    /** Few bytes and few of each, so that keys are met again and prefixes have many. */
    private byte[] key() {
        byte[] key = new byte[random.nextInt(6)];
        for (int i = 0; i < key.length; i++) {
            key[i] = (byte) (random.nextInt(5) - 1);
        }
        return key;
    }

    private byte[] value() {
        int length = random.nextInt(100) == 0 ? random.nextInt(60_000) : random.nextInt(300);
        byte[] value = new byte[length];
        random.nextBytes(value);
        return value;
    }

    private void closeMoments() {
        moments.forEach(moment -> moment.snapshot.close());
        moments.clear();
    }
}
