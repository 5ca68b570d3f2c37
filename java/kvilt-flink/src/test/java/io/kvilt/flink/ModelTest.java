package io.kvilt.flink;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.kvilt.KeyRange;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Random operations on rows of many users beside a map of maps, while the number of subtasks changes. */
class ModelTest {
    private static final int USERS = 60;

    @TempDir
    Path directory;

    private Random random;
    private Map<String, NavigableMap<byte[], byte[]>> model = new HashMap<>();
    private int sawScans;
    private int sawRows;

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3})
    void rows_are_those_of_a_map_while_the_job_is_rescaled(long seed) throws Exception {
        random = new Random(seed);
        try (Subtasks subtasks = new Subtasks(directory, 4)) {
            for (int count : new int[] {2, 5, 1, 4}) {
                operate(subtasks, 1_500);
                subtasks.rescale(count);
                checkAll(subtasks);
            }
            OperatorSubtaskState before = subtasks.checkpoint();
            Map<String, NavigableMap<byte[], byte[]>> modelBefore = new HashMap<>();
            model.forEach((user, rows) -> modelBefore.put(user, new TreeMap<>(rows)));
            operate(subtasks, 1_000);
            subtasks.restore(before);
            model = modelBefore;
            checkAll(subtasks);
        }
        assertEquals(0, directory.toFile().list().length, "directories are left");
        assertFalse(sawScans < 1_000 || sawRows < 10_000, "the test has become weak: " + sawScans + ", " + sawRows);
    }

    private void operate(Subtasks subtasks, int operations) throws Exception {
        for (int i = 0; i < operations; i++) {
            String user = "user" + random.nextInt(USERS);
            NavigableMap<byte[], byte[]> rows = rowsOf(user);
            subtasks.process(user, (keyed, out) -> {
                assertEquals(user, keyed.key());
                // Several operations in one call, as a function would do.
                for (int n = random.nextInt(4); n >= 0; n--) {
                    operate(keyed, rows);
                }
            });
        }
    }

    private NavigableMap<byte[], byte[]> rowsOf(String user) {
        return model.computeIfAbsent(user, u -> new TreeMap<>(Arrays::compareUnsigned));
    }

    private void operate(KeyedRows keyed, NavigableMap<byte[], byte[]> rows) {
        switch (random.nextInt(10)) {
            case 0, 1, 2 -> {
                byte[] key = key();
                byte[] value = value();
                keyed.put(key, value);
                rows.put(key, value);
            }
            case 3 -> {
                byte[] key = key();
                keyed.delete(key);
                rows.remove(key);
            }
            case 4 -> {
                KeyedBatch batch = keyed.newBatch();
                for (int n = random.nextInt(20); n > 0; n--) {
                    byte[] key = key();
                    if (random.nextInt(4) == 0) {
                        batch.delete(key);
                        rows.remove(key);
                    } else {
                        byte[] value = value();
                        batch.put(key, value);
                        rows.put(key, value);
                    }
                }
                keyed.write(batch);
            }
            case 5 -> {
                if (random.nextInt(4) == 0) {
                    KeyRange range = range();
                    keyed.deleteRange(range);
                    rows.keySet().removeIf(range::contains);
                }
            }
            case 6, 7 -> {
                byte[] key = key();
                assertArrayEquals(rows.get(key), keyed.get(key));
                assertEquals(rows.containsKey(key), keyed.contains(key));
            }
            default -> scan(keyed, rows);
        }
    }

    private void scan(KeyedRows keyed, NavigableMap<byte[], byte[]> rows) {
        sawScans++;
        KeyRange range = range();
        NavigableMap<byte[], byte[]> expected = new TreeMap<>(Arrays::compareUnsigned);
        rows.forEach((key, value) -> {
            if (range.contains(key)) {
                expected.put(key, value);
            }
        });
        boolean isReverse = random.nextBoolean();
        KeyedIterator found = isReverse
                ? random.nextBoolean() ? keyed.scanReverse(range) : keyed.scanReverse(range, 3)
                : random.nextBoolean() ? keyed.scan(range) : keyed.scan(range, 3);
        Iterator<Map.Entry<byte[], byte[]>> entries =
                (isReverse ? expected.descendingMap() : expected).entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry<byte[], byte[]> row = entries.next();
            assertArrayEquals(row.getKey(), found.key());
            assertArrayEquals(row.getValue(), found.value());
            sawRows++;
            if (isReverse) {
                found.prev();
            } else {
                found.next();
            }
        }
        assertFalse(found.isValid());
        byte[] target = key();
        found.seek(target);
        Map.Entry<byte[], byte[]> ceiling = expected.ceilingEntry(target);
        assertArrayEquals(ceiling == null ? null : ceiling.getKey(), found.isValid() ? found.key() : null);
        found.seekForPrev(target);
        Map.Entry<byte[], byte[]> floor = expected.floorEntry(target);
        assertArrayEquals(floor == null ? null : floor.getKey(), found.isValid() ? found.key() : null);
        if (random.nextBoolean()) {
            found.close();
        }
    }

    private void checkAll(Subtasks subtasks) throws Exception {
        for (Map.Entry<String, NavigableMap<byte[], byte[]>> entry : model.entrySet()) {
            subtasks.process(entry.getKey(), (keyed, out) -> {
                Iterator<Map.Entry<byte[], byte[]>> expected = entry.getValue().entrySet().iterator();
                keyed.scan(KeyRange.all()).forEachRemaining((key, value) -> {
                    Map.Entry<byte[], byte[]> row = expected.next();
                    assertArrayEquals(row.getKey(), key);
                    assertArrayEquals(row.getValue(), value);
                });
                assertFalse(expected.hasNext(), "rows are missing");
            });
        }
    }

    /** Short ones of few different bytes, so that keys meet, begin one another, and have 0xff at their ends. */
    private byte[] key() {
        byte[] bytes = {0, 1, 'a', -2, -1};
        byte[] key = new byte[random.nextInt(4)];
        for (int i = 0; i < key.length; i++) {
            key[i] = bytes[random.nextInt(bytes.length)];
        }
        return key;
    }

    private byte[] value() {
        byte[] value = new byte[random.nextInt(50) == 0 ? 40_000 : random.nextInt(60)];
        random.nextBytes(value);
        return value;
    }

    private KeyRange range() {
        return switch (random.nextInt(6)) {
            case 0 -> KeyRange.all();
            case 1 -> KeyRange.atLeast(key());
            case 2 -> KeyRange.of(key(), random.nextBoolean(), key(), random.nextBoolean());
            case 3 -> KeyRange.atMost(key());
            case 4 -> KeyRange.lessThan(key());
            default -> KeyRange.prefix(key());
        };
    }
}
