package io.kvilt.kafka;

import io.kvilt.kafka.Storage.Range;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What window and session stores have in common: rows lie in segments of time, and live for a while.
 *
 * <p>What is expired is not seen, at once; a segment in which all is expired is deleted as one range, by the next
 * commit. Segments are as Kafka has them, so rows come in the order in which its RocksDB stores give them: by segment,
 * then by key, then by time; where results are given at the close of windows, by segment, then by time, then by key.
 */
abstract class SegmentedStore extends KviltStore {
    private static final Logger LOG = LoggerFactory.getLogger(SegmentedStore.class);

    final long retention;
    private final long interval;
    private final int tail;

    /** Numbers of the segments that may have rows. */
    private final NavigableSet<Long> segments = new ConcurrentSkipListSet<>();

    private Sensor dropped;

    SegmentedStore(String name, String kind, long retention, long interval, int tail) {
        super(name, kind + " " + interval);
        this.retention = retention;
        this.interval = interval;
        this.tail = tail;
    }

    /** As Kafka's stores choose it. */
    static long interval(long retention) {
        return Math.max(retention / 2, 60_000);
    }

    @Override
    final void opened(Storage storage, StateStoreContext context) {
        segments.clear();
        byte[] from = Keys.NONE;
        while (from != null) {
            try (Rows rows = storage.scan(List.of(new Range(from, null)), false)) {
                KeyValue<byte[], byte[]> first = rows.next();
                from = null;
                if (first != null) {
                    long segment = Keys.segmentOf(first.key);
                    segments.add(segment);
                    from = Keys.segment(segment + 1);
                }
            }
        }
        if (storage.streamTime() >= 0) {
            expire(storage);
        }
        if (context.metrics() instanceof StreamsMetricsImpl metrics) {
            dropped = TaskMetrics.droppedRecordsSensor(
                    Thread.currentThread().getName(), context.taskId().toString(), metrics);
        }
    }

    @Override
    final void restored(ConsumerRecord<byte[], byte[]> record, List<Map.Entry<byte[], byte[]>> rows) {
        byte[] key = record.key();
        if (key.length < tail) {
            throw new IllegalArgumentException(
                    "its key has " + key.length + " bytes, and a window alone takes " + tail);
        }
        long time = Keys.time(key, tail);
        if (isLive(time)) {
            rows.add(new Row(Keys.row(segment(time), key), record.value()));
        }
    }

    final long segment(long time) {
        return time / interval;
    }

    /** Notes the time, and gives the row its value, or takes it away, unless its time is over. */
    final void put(byte[] row, long time, byte[] value) {
        if (isLive(time)) {
            storage().put(row, value);
        } else {
            if (dropped != null) {
                dropped.record();
            }
            LOG.warn("A record of time {} is too late for the store {}, and is passed over", time, name());
        }
    }

    /** Takes the row's value away if it has one; a segment is not begun for that. */
    final void remove(byte[] row, long time) {
        Storage open = storage();
        open.observe(time);
        if (segments.contains(segment(time))) {
            open.put(row, null);
        }
    }

    private boolean isLive(long time) {
        Storage open = storage();
        open.observe(time);
        long segment = segment(time);
        if (segment < segment(open.streamTime() - retention)) {
            return false;
        }
        segments.add(segment);
        expire(open);
        return true;
    }

    private void expire(Storage open) {
        long live = segment(open.streamTime() - retention);
        if (!segments.isEmpty() && segments.first() < live) {
            segments.headSet(live).clear();
            open.expire(Keys.segment(live));
        }
    }

    /** The first time that is not expired. */
    final long firstLive() {
        return storage().streamTime() - retention + 1;
    }

    /** Whether there may be rows of this time. */
    final boolean hasSegment(long time) {
        return segments.contains(segment(time));
    }

    /**
     * Rows of the segments from one time to another.
     *
     * @param key rows of this key only, or null
     * @param from rows of this key and greater ones, or null
     * @param to rows of this key and less, or null
     */
    final Rows rows(byte[] key, Bytes from, Bytes to, long timeFrom, long timeTo, boolean isBackward) {
        List<Range> ranges = new ArrayList<>();
        NavigableSet<Long> searched = timeFrom > timeTo
                ? new ConcurrentSkipListSet<>()
                : segments.subSet(segment(timeFrom), true, segment(timeTo), true);
        for (long segment : isBackward ? searched.descendingSet() : searched) {
            long begin = segment * interval;
            long last = Math.min(timeTo, begin + interval - 1);
            byte[] first;
            byte[] behind;
            if (key != null) {
                first = Keys.first(segment, key, Math.max(timeFrom, begin));
                behind = Keys.behind(segment, key, last, tail);
            } else {
                first = from == null ? Keys.segment(segment) : Keys.row(segment, from.get());
                behind = Keys.behind(segment, to == null ? null : to.get(), last, tail);
            }
            ranges.add(new Range(first, behind));
        }
        return storage().scan(ranges, isBackward).endingWithStore();
    }

    /** Whether a row's key lies between two, either of which may be null. */
    final boolean isBetween(byte[] row, Bytes from, Bytes to) {
        if (from == null && to == null) {
            return true;
        }
        Bytes key = Keys.key(row, tail);
        return (from == null || key.compareTo(from) >= 0) && (to == null || key.compareTo(to) <= 0);
    }

    final boolean isEmptyRange(Bytes from, Bytes to) {
        if (from == null || to == null || from.compareTo(to) <= 0) {
            return false;
        }
        LOG.warn(Keys.WRONG_RANGE);
        return true;
    }

    /** No rows. */
    final Rows none() {
        return storage().scan(List.of(), false);
    }
}
