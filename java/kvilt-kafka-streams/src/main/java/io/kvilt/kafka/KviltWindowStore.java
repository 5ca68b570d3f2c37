package io.kvilt.kafka;

import java.util.Objects;
import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.apache.kafka.streams.state.internals.WrappedStateStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Values by key and window; with duplicates, any number for each. {@link Keys} draws the rows. */
class KviltWindowStore extends SegmentedStore implements WindowStore<Bytes, byte[]> {
    private static final Logger LOG = LoggerFactory.getLogger(KviltWindowStore.class);

    private final long windowSize;
    private final boolean retainsDuplicates;

    /** Whether the store is for results at the close of windows: these need the windows that expire at this moment. */
    private final boolean isForClosing;

    /**
     * Whether {@link #fetchAll}, by which Kafka asks for results at the close of windows, gives them by time: what is
     * downstream drops an early window behind a late one. Kafka's cache can only merge with windows that come by key.
     */
    private volatile boolean isByTime;

    /** Of the last row, where there may be several for a key and window. */
    private int number;

    KviltWindowStore(String name, long retention, long windowSize, boolean retainsDuplicates, boolean isForClosing) {
        this(name, "window", retention, windowSize, retainsDuplicates, isForClosing);
    }

    private KviltWindowStore(
            String name,
            String kind,
            long retention,
            long windowSize,
            boolean retainsDuplicates,
            boolean isForClosing) {
        super(name, kind, retention, interval(retention), Keys.WINDOW_TAIL);
        this.windowSize = windowSize;
        this.retainsDuplicates = retainsDuplicates;
        this.isForClosing = isForClosing;
    }

    /** One whose values begin with a timestamp; the marker makes Kafka restore them so. */
    static final class Timestamped extends KviltWindowStore implements TimestampedBytesStore {
        Timestamped(String name, long retention, long windowSize, boolean retainsDuplicates, boolean isForClosing) {
            super(name, "window timestamped", retention, windowSize, retainsDuplicates, isForClosing);
        }
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        boolean isCached = isCached(root);
        isByTime = isForClosing && !isCached;
        if (isForClosing && isCached) {
            LOG.warn(
                    "Kafka's cache lies over the store {}, which is for results at the close of windows: where several"
                            + " windows close at once, results come by key and not by time, and may be too late for"
                            + " what is downstream. Materialized.withCachingDisabled() avoids that",
                    name());
        }
        super.init(context, root);
    }

    /** Whether any wrapper lies over a store but those that measure calls and write its changelog: Kafka's cache. */
    private static boolean isCached(StateStore root) {
        StateStore store = root;
        while (store instanceof WrappedStateStore<?, ?, ?> wrapper) {
            String kind = wrapper.getClass().getSimpleName();
            if (!kind.startsWith("Metered") && !kind.startsWith("ChangeLogging")) {
                return true;
            }
            store = wrapper.wrapped();
        }
        return false;
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
        return scan(null, null, from, to, false, isByTime);
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
        return scan(keyFrom, keyTo, from, to, isBackward, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> scan(
            Bytes keyFrom, Bytes keyTo, long from, long to, boolean isBackward, boolean sorts) {
        if (isEmptyRange(keyFrom, keyTo)) {
            return none().as(row -> null);
        }
        long first = Math.max(from, firstSeen());
        Function<byte[], Windowed<Bytes>> decode = row -> {
            long begin = Keys.time(row, Keys.WINDOW_TAIL);
            return first <= begin && begin <= to && isBetween(row, keyFrom, keyTo) ? windowed(row, begin) : null;
        };
        Rows rows = rows(null, keyFrom, keyTo, first, to, isBackward);
        return (sorts ? rows.sorted(row -> decode.apply(row) != null, Keys.WINDOWS_BY_TIME) : rows).as(decode);
    }

    private long firstSeen() {
        return isForClosing ? firstLive() - 1 : firstLive();
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
