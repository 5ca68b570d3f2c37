package io.kvilt.kafka;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.Function;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/** Random operations to run on several stores; each returns its result as text. */
final class Operations {
    /**
     * Another one in each run, so that runs do not repeat each other; {@code cargo xtask java} gives one to each
     * commit. {@code -Dkvilt.seed=N} runs one again: each failure tells its seed.
     */
    static final long FRESH_SEED = Long.getLong("kvilt.seed", new Random().nextInt(Integer.MAX_VALUE));

    /** Time in milliseconds at which windows begin, later than what is kept of them. */
    static final long BEGIN = 300_000;

    private final Random random;

    /** @param text what it does, for failures */
    record Operation<S, R>(String text, Function<S, R> function) implements Function<S, R> {
        @Override
        public R apply(S store) {
            return function.apply(store);
        }

        @Override
        public String toString() {
            return text;
        }
    }

    Operations(Random random) {
        this.random = random;
    }

    Operation<KeyValueStore<Bytes, byte[]>, Object> onKeyValues() {
        Bytes key = key();
        Bytes from = keyOrNull();
        Bytes to = keyOrNull();
        byte[] value = value();
        switch (random.nextInt(12)) {
            case 0, 1, 2:
                byte[] valueOrNull = valueOrNull();
                return operation("put " + key, store -> {
                    store.put(key, valueOrNull);
                    return null;
                });
            case 3:
                return operation("delete " + key, store -> Text.of(store.delete(key)));
            case 4:
                return operation("putIfAbsent " + key, store -> Text.of(store.putIfAbsent(key, value)));
            case 5:
                List<KeyValue<Bytes, byte[]>> entries = new ArrayList<>();
                for (int i = random.nextInt(6); i > 0; i--) {
                    entries.add(new KeyValue<>(key(), valueOrNull()));
                }
                return operation("putAll", store -> {
                    store.putAll(entries);
                    return null;
                });
            case 6, 7:
                return operation("get " + key, store -> Text.of(store.get(key)));
            case 8:
                return operation("range " + from + " " + to, store -> Text.of(store.range(from, to)));
            case 9:
                return operation("reverseRange " + from + " " + to, store -> Text.of(store.reverseRange(from, to)));
            case 10:
                // Kafka's own stores fail at a prefix of bytes 0xff alone, and give a row too many behind one at the end.
                byte[] prefix = key.get()[key.get().length - 1] == (byte) 0xff ? new byte[] {'a'} : key.get();
                return operation(
                        "prefixScan " + Bytes.wrap(prefix),
                        store -> Text.of(store.prefixScan(prefix, new ByteArraySerializer())));
            default:
                return operation("all", store -> Text.of(store.all()) + " " + Text.of(store.reverseAll()));
        }
    }

    /** @param hasDuplicates there, to put nothing does nothing, but in memory time goes on by it */
    Operation<WindowStore<Bytes, byte[]>, List<String>> onWindows(long now, boolean hasDuplicates) {
        Bytes key = key();
        Bytes keyFrom = keyOrNull();
        Bytes keyTo = keyOrNull();
        long time = Math.max(0, now - random.nextInt(250_000));
        long from = Math.max(0, now - random.nextInt(250_000));
        long to = random.nextInt(5) == 0 ? Long.MAX_VALUE : from + random.nextInt(150_000);
        String between = " from " + from + " to " + to;
        String keys = " " + keyFrom + " " + keyTo + between;
        switch (random.nextInt(13)) {
            case 0, 1, 2, 3, 4, 5:
                byte[] value = hasDuplicates ? value() : valueOrNull();
                return operation("put " + key + " " + time, store -> {
                    store.put(key, value, time);
                    return List.of();
                });
            case 6:
                return operation("fetch " + key + " " + time, store -> List.of(Text.of(store.fetch(key, time))));
            case 7:
                return operation("fetch " + key + between, store -> Text.of(store.fetch(key, from, to)));
            case 8:
                return operation("backwardFetch " + key + between, store -> Text.of(store.backwardFetch(key, from, to)));
            case 9:
                return operation("fetch" + keys, store -> Text.of(store.fetch(keyFrom, keyTo, from, to)));
            case 10:
                return operation("backwardFetch" + keys, store -> Text.of(store.backwardFetch(keyFrom, keyTo, from, to)));
            case 11:
                return random.nextBoolean()
                        ? operation("backwardFetchAll" + between, store -> Text.of(store.backwardFetchAll(from, to)))
                        : operation("fetchAll" + between, store -> Text.of(store.fetchAll(from, to)));
            default:
                return random.nextBoolean()
                        ? operation("backwardAll", store -> Text.of(store.backwardAll()))
                        : operation("all", store -> Text.of(store.all()));
        }
    }

    Operation<SessionStore<Bytes, byte[]>, List<String>> onSessions(long now) {
        Bytes key = key();
        Bytes one = key();
        Bytes other = key();
        // In memory a range that begins behind its end is an error.
        Bytes keyFrom = random.nextInt(5) == 0 ? null : one.compareTo(other) < 0 ? one : other;
        Bytes keyTo = random.nextInt(5) == 0 ? null : one.compareTo(other) < 0 ? other : one;
        // Few different ones, so that sessions are met again.
        long begin = Math.max(0, now - random.nextInt(250_000)) / 5000 * 5000;
        long end = begin + random.nextInt(4) * 5000;
        long to = random.nextInt(5) == 0 ? Long.MAX_VALUE : begin + random.nextInt(150_000);
        Windowed<Bytes> session = new Windowed<>(key, new SessionWindow(begin, end));
        String between = " from " + begin + " to " + to;
        String keys = " " + keyFrom + " " + keyTo + between;
        switch (random.nextInt(12)) {
            case 0, 1, 2, 3, 4:
                byte[] value = valueOrNull();
                return operation("put " + session, store -> {
                    store.put(session, value);
                    return List.of();
                });
            case 5:
                return operation("remove " + session, store -> {
                    store.remove(session);
                    return List.of();
                });
            case 6:
                return operation(
                        "fetchSession " + session, store -> List.of(Text.of(store.fetchSession(key, begin, end))));
            case 7:
                return operation("findSessions " + key + between, store -> Text.of(store.findSessions(key, begin, to)));
            case 8:
                return operation(
                        "backwardFindSessions " + key + between,
                        store -> Text.of(store.backwardFindSessions(key, begin, to)));
            case 9:
                return operation(
                        "findSessions" + keys, store -> Text.of(store.findSessions(keyFrom, keyTo, begin, to)));
            case 10:
                return operation(
                        "backwardFindSessions" + keys,
                        store -> Text.of(store.backwardFindSessions(keyFrom, keyTo, begin, to)));
            default:
                return operation("fetch" + keys, store -> Text.of(store.fetch(keyFrom, keyTo)));
        }
    }

    private static <S, R> Operation<S, R> operation(String text, Function<S, R> function) {
        return new Operation<>(text, function);
    }

    /** Keys that begin one another, and with bytes at both ends of the order. */
    private Bytes key() {
        byte[] alphabet = {0, 'a', 'b', (byte) 0x80, (byte) 0xff};
        byte[] key = new byte[1 + random.nextInt(3)];
        for (int i = 0; i < key.length; i++) {
            key[i] = alphabet[random.nextInt(alphabet.length)];
        }
        return Bytes.wrap(key);
    }

    private Bytes keyOrNull() {
        return random.nextInt(5) == 0 ? null : key();
    }

    private byte[] value() {
        byte[] value = new byte[random.nextInt(20)];
        random.nextBytes(value);
        return value;
    }

    private byte[] valueOrNull() {
        return random.nextInt(4) == 0 ? null : value();
    }
}
