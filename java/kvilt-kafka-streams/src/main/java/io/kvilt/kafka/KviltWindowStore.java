package io.kvilt.kafka;

import java.util.Objects;
import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Values by key and window; with duplicates, any number for each. {@link Keys} draws the rows. */
class KviltWindowStore extends SegmentedStore implements WindowStore<Bytes, byte[]> {
    private final long windowSize;
    private final boolean retainsDuplicates;

    /** Whether the windows that expire at this moment are seen: results at the close of windows need them. */
    private final boolean showsLast;

    /** Of the last row, where there may be several for a key and window. */
    private int number;

    KviltWindowStore(String name, long retention, long windowSize, boolean retainsDuplicates, boolean showsLast) {
        this(name, "window", retention, windowSize, retainsDuplicates, showsLast);
    }

    private KviltWindowStore(
            String name,
            String kind,
            long retention,
            long windowSize,
            boolean retainsDuplicates,
            boolean showsLast) {
        super(name, kind, retention, interval(retention), Keys.WINDOW_TAIL);
        this.windowSize = windowSize;
        this.retainsDuplicates = retainsDuplicates;
        this.showsLast = showsLast;
    }

    /** One whose values begin with a timestamp; the marker makes Kafka restore them so. */
    static final class Timestamped extends KviltWindowStore implements TimestampedBytesStore {
        Timestamped(String name, long retention, long windowSize, boolean retainsDuplicates, boolean showsLast) {
            super(name, "window timestamped", retention, windowSize, retainsDuplicates, showsLast);
        }
    }

    @Override
    public void put(Bytes key, byte[] value, long begin) {
        byte[] bytes = bytes(key);
        if (retainsDuplicates) {
            if (value == null) {
                return;
            }
            number = number + 1 & Integer.MAX_VALUE;
        }
        put(Keys.window(segment(begin), bytes, begin, number), begin, value);
    }

    @Override
    public byte[] fetch(Bytes key, long begin) {
        byte[] bytes = bytes(key);
        if (begin < firstSeen() || !hasSegment(begin)) {
            return null;
        }
        return storage().get(Keys.window(segment(begin), bytes, begin, number));
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to) {
        return fetch(key, from, to, false);
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long from, long to) {
        return fetch(key, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return fetch(keyFrom, keyTo, from, to, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return fetch(keyFrom, keyTo, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long from, long to) {
        return fetch(null, null, from, to, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long from, long to) {
        return fetch(null, null, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return fetch(null, null, 0, Long.MAX_VALUE, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return fetch(null, null, 0, Long.MAX_VALUE, true);
    }

    private WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to, boolean isBackward) {
        byte[] bytes = bytes(key);
        long first = Math.max(from, firstSeen());
        Function<byte[], Long> decode = row -> {
            long begin = Keys.time(row, Keys.WINDOW_TAIL);
            return Keys.isOf(row, bytes, Keys.WINDOW_TAIL) && first <= begin && begin <= to ? begin : null;
        };
        return rows(bytes, null, null, first, to, isBackward).asWindows(decode);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> fetch(
            Bytes keyFrom, Bytes keyTo, long from, long to, boolean isBackward) {
        if (isEmptyRange(keyFrom, keyTo)) {
            return none().as(row -> null);
        }
        long first = Math.max(from, firstSeen());
        Function<byte[], Windowed<Bytes>> decode = row -> {
            long begin = Keys.time(row, Keys.WINDOW_TAIL);
            return first <= begin && begin <= to && isBetween(row, keyFrom, keyTo) ? windowed(row, begin) : null;
        };
        return rows(null, keyFrom, keyTo, first, to, isBackward).as(decode);
    }

    private long firstSeen() {
        return showsLast ? firstLive() - 1 : firstLive();
    }

    private Windowed<Bytes> windowed(byte[] row, long begin) {
        long end = begin + windowSize;
        // As Kafka does it: a window has no end behind the last moment.
        return new Windowed<>(Keys.key(row, Keys.WINDOW_TAIL), new TimeWindow(begin, end < 0 ? Long.MAX_VALUE : end));
    }

    private static byte[] bytes(Bytes key) {
        return Objects.requireNonNull(key, "key cannot be null").get();
    }
}
