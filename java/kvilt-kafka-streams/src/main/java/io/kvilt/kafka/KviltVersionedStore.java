package io.kvilt.kafka;

import io.kvilt.kafka.Storage.Range;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.query.FailureReason;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Values by key and time: each put is a row, and lies beside the other versions of its key, the newest first.
 * {@link VersionKeys} draws the rows.
 *
 * <p>A version is valid from its own timestamp to that of the next one. What was valid when the retention begins, or
 * later, is the history, and the newest version of a key stays for ever. What is older is not seen, at once, and is
 * removed little by little: each put leaves a <i>visit</i> to its key in the segment of its timestamp, and when that
 * segment is over, puts of whatever keys look there for versions that have no use.
 */
final class KviltVersionedStore extends KviltStore implements VersionedKeyValueStore<Bytes, byte[]> {
    private static final Logger LOG = LoggerFactory.getLogger(KviltVersionedStore.class);

    /** Keys that a put visits at most. It leaves one visit itself, so two would catch up. */
    private static final int VISITS_MAX = 4;

    /** Versions that a visit of a put removes at most; if there are more, the key is visited again. */
    private static final int REMOVED_MAX = 64;

    private final long retention;
    private final long interval;

    /** Visits of all segments before it are done. */
    private long visited;

    /**
     * Behind the last visit that was done. No later one comes before it, and a scan from there steps over no visit that
     * was taken away since the commit.
     */
    private byte[] visitsFrom;

    /** The youngest version that was removed of the key whose visit is not done; null for none. Likewise. */
    private byte[] removedTo;

    private Sensor dropped;

    KviltVersionedStore(String name, long retention, long interval) {
        super(name, "versioned " + interval);
        this.retention = retention;
        this.interval = interval;
    }

    /** As Kafka's stores choose it. */
    static long interval(long retention) {
        if (retention <= 60_000) {
            return Math.max(retention / 3, 2_000);
        } else if (retention <= 300_000) {
            return Math.max(retention / 5, 20_000);
        } else if (retention <= 3_600_000) {
            return Math.max(retention / 12, 60_000);
        }
        return Math.max(retention / 24, 300_000);
    }

    @Override
    void opened(Storage storage, StateStoreContext context) {
        visited = Long.MIN_VALUE;
        visitsFrom = Keys.NONE;
        removedTo = null;
        if (context.metrics() instanceof StreamsMetricsImpl metrics) {
            dropped = TaskMetrics.droppedRecordsSensor(
                    Thread.currentThread().getName(), context.taskId().toString(), metrics);
        }
    }

    @Override
    public long put(Bytes key, byte[] value, long timestamp) {
        byte[] escaped = escaped(key);
        Storage open = storage();
        if (isLate(open, timestamp)) {
            open.putAll(List.of());
            return PUT_RETURN_CODE_NOT_PUT;
        }
        open.observe(timestamp);
        long validTo = next(open, escaped, timestamp);
        List<Map.Entry<byte[], byte[]>> rows = new ArrayList<>();
        // First, as it may remove a deletion that the version replaces.
        visit(open, rows, 1);
        add(rows, escaped, value, timestamp);
        open.putAll(rows);
        return validTo;
    }

    @Override
    public VersionedRecord<byte[]> delete(Bytes key, long timestamp) {
        byte[] escaped = escaped(key);
        Storage open = storage();
        if (isLate(open, timestamp)) {
            return null;
        }
        VersionedRecord<byte[]> before = at(open, escaped, timestamp);
        put(key, null, timestamp);
        return before;
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key) {
        return latest(storage(), escaped(key), Long.MAX_VALUE);
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key, long asOfTimestamp) {
        byte[] escaped = escaped(key);
        Storage open = storage();
        // The lock keeps a put from moving the begin of the history and removing what is asked for.
        synchronized (open.position()) {
            return isOver(open, asOfTimestamp)
                    ? latest(open, escaped, asOfTimestamp)
                    : at(open, escaped, asOfTimestamp);
        }
    }

    /**
     * The versions that were valid at some moment of a range of time.
     *
     * @param key whose
     * @param from the first moment
     * @param to the last one
     * @param order the newest first, if it is not ascending
     * @return to be closed
     */
    VersionedRecordIterator<byte[]> get(Bytes key, long from, long to, ResultOrder order) {
        byte[] escaped = escaped(key);
        Storage open = storage();
        boolean isAscending = order == ResultOrder.ASCENDING;
        synchronized (open.position()) {
            // Of what is over the newest version of all is left, if it was valid then.
            long first = Math.max(from, historyBegin(open));
            if (isOver(open, to)) {
                VersionedRecord<byte[]> latest = latest(open, escaped, to);
                return Versions.of(latest == null ? List.of() : List.of(latest));
            }
            if (isAscending) {
                long begin;
                try (Rows rows = open.scan(List.of(VersionKeys.from(escaped, first)), false)) {
                    KeyValue<byte[], byte[]> valid = rows.next();
                    begin = valid == null ? first : VersionKeys.timestamp(valid.key);
                }
                return Versions.ascending(open.scan(List.of(VersionKeys.until(escaped, begin)), true), first, to);
            }
            long next = next(open, escaped, to);
            return Versions.descending(open.scan(List.of(VersionKeys.from(escaped, to)), false), first, next);
        }
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        if (query instanceof MultiVersionedKeyQuery<?, ?>) {
            return answer(query, bound, config);
        }
        return super.query(query, bound, config);
    }

    /** Kafka's own answer knows RocksDB's class alone; this says and does the same around it. */
    @SuppressWarnings("unchecked")
    private <R> QueryResult<R> answer(Query<R> query, PositionBound bound, QueryConfig config) {
        long begin = System.nanoTime();
        MultiVersionedKeyQuery<Bytes, byte[]> versions = (MultiVersionedKeyQuery<Bytes, byte[]>) query;
        Position position = getPosition();
        QueryResult<R> result;
        synchronized (position) {
            if (!StoreQueryUtils.isPermitted(position, bound, partition())) {
                result = QueryResult.notUpToBound(position, bound, partition());
            } else {
                long from = versions.fromTime().map(Instant::toEpochMilli).orElse(Long.MIN_VALUE);
                long to = versions.toTime().map(Instant::toEpochMilli).orElse(Long.MAX_VALUE);
                result = (QueryResult<R>) result(versions.key(), from, to, versions.resultOrder());
            }
            result.setPosition(position.copy());
        }
        if (config.isCollectExecutionInfo()) {
            result.addExecutionInfo("Handled in " + getClass() + " in " + (System.nanoTime() - begin) + "ns");
        }
        return result;
    }

    private QueryResult<VersionedRecordIterator<byte[]>> result(Bytes key, long from, long to, ResultOrder order) {
        try {
            return QueryResult.forResult(get(key, from, to, order));
        } catch (RuntimeException e) {
            return QueryResult.forFailure(FailureReason.STORE_EXCEPTION, getClass() + " failed: " + e.getMessage());
        }
    }

    @Override
    void restored(ConsumerRecord<byte[], byte[]> record, List<Map.Entry<byte[], byte[]>> rows) {
        Storage open = storage();
        if (!isOver(open, record.timestamp())) {
            open.observe(record.timestamp());
            add(rows, VersionKeys.escaped(record.key()), record.value(), record.timestamp());
        }
    }

    @Override
    void settled(Storage open, int records) {
        List<Map.Entry<byte[], byte[]>> rows = new ArrayList<>();
        visit(open, rows, records);
        if (!rows.isEmpty()) {
            open.restore(rows);
        }
    }

    private void add(List<Map.Entry<byte[], byte[]>> rows, byte[] escaped, byte[] value, long timestamp) {
        rows.add(new Row(VersionKeys.version(escaped, timestamp), VersionKeys.wrapped(value)));
        rows.add(new Row(VersionKeys.visit(segment(timestamp), escaped), Keys.NONE));
    }

    /** The newest version, if it begins at this time or before and has a value. */
    private VersionedRecord<byte[]> latest(Storage open, byte[] escaped, long asOf) {
        try (Rows rows = open.scan(List.of(VersionKeys.versions(escaped)), false)) {
            KeyValue<byte[], byte[]> newest = rows.next();
            if (newest == null || VersionKeys.isDeletion(newest.value) || VersionKeys.timestamp(newest.key) > asOf) {
                return null;
            }
            return new VersionedRecord<>(VersionKeys.value(newest.value), VersionKeys.timestamp(newest.key));
        }
    }

    /** The version of a moment, if it has a value. */
    private VersionedRecord<byte[]> at(Storage open, byte[] escaped, long asOf) {
        synchronized (open.position()) {
            try (Rows rows = open.scan(List.of(VersionKeys.from(escaped, asOf)), false)) {
                KeyValue<byte[], byte[]> version = rows.next();
                if (version == null || VersionKeys.isDeletion(version.value)) {
                    return null;
                }
                return Versions.record(version, next(open, escaped, asOf));
            }
        }
    }

    /** Where the next version behind this time begins, or Kafka's number for none. */
    private static long next(Storage open, byte[] escaped, long timestamp) {
        try (Rows rows = open.scan(List.of(VersionKeys.after(escaped, timestamp)), true)) {
            KeyValue<byte[], byte[]> next = rows.next();
            return next == null ? PUT_RETURN_CODE_VALID_TO_UNDEFINED : VersionKeys.timestamp(next.key);
        }
    }

    /** Adds deletes of versions that are not seen any more, of some keys whose visits are due: as many as puts may. */
    private void visit(Storage open, List<Map.Entry<byte[], byte[]>> rows, int puts) {
        long due = segment(historyBegin(open));
        if (due <= visited) {
            return;
        }
        try (Rows visits = open.scan(List.of(VersionKeys.visits(visitsFrom, due)), false)) {
            int rowsMax = puts * VISITS_MAX * (REMOVED_MAX + 1);
            // Whose rows are added, and not yet removed: another visit, of a later segment, would add them again.
            Set<Bytes> visitedKeys = new HashSet<>();
            for (int i = 0; i < puts * VISITS_MAX && rows.size() < rowsMax; i++) {
                KeyValue<byte[], byte[]> visit = visits.next();
                if (visit == null) {
                    visited = due;
                    return;
                }
                byte[] escaped = VersionKeys.keyOf(visit.key);
                // All puts may be of one key.
                if (visitedKeys.add(Bytes.wrap(escaped)) && !remove(open, rows, escaped, puts * REMOVED_MAX)) {
                    return;
                }
                rows.add(new Row(visit.key, null));
                visitsFrom = VersionKeys.behind(visit.key);
            }
        }
    }

    /**
     * Whether all versions of the key that are not seen any more have been added, to be removed.
     *
     * <p>The oldest come first, so what is left when the limit stops it is all that was valid from some moment on. The
     * history may begin earlier again, by a longer retention or a stream time that a crash took back: then no version
     * stands in for younger ones that are gone.
     */
    private boolean remove(Storage open, List<Map.Entry<byte[], byte[]>> rows, byte[] escaped, int removedMax) {
        Range past = VersionKeys.from(escaped, historyBegin(open));
        byte[] end = removedTo == null ? past.to() : removedTo;
        // It is valid at the begin of the history. If it says that there is no value, so does its absence.
        KeyValue<byte[], byte[]> first;
        try (Rows versions = open.scan(List.of(new Range(past.from(), end)), false)) {
            first = versions.next();
        }
        if (first != null) {
            try (Rows older = open.scan(List.of(new Range(VersionKeys.behind(first.key), end)), true)) {
                int removed = 0;
                for (KeyValue<byte[], byte[]> next = older.next(); next != null; next = older.next()) {
                    if (removed++ == removedMax) {
                        return false;
                    }
                    rows.add(new Row(next.key, null));
                    removedTo = next.key;
                }
            }
            if (VersionKeys.isDeletion(first.value)) {
                rows.add(new Row(first.key, null));
            }
        }
        removedTo = null;
        return true;
    }

    private boolean isLate(Storage open, long timestamp) {
        if (!isOver(open, timestamp)) {
            return false;
        }
        if (dropped != null) {
            dropped.record();
        }
        LOG.warn("A record of time {} is too late for the store {}, and is passed over", timestamp, name());
        return true;
    }

    private boolean isOver(Storage open, long timestamp) {
        return timestamp < historyBegin(open);
    }

    /** The first moment that may be asked for. */
    private long historyBegin(Storage open) {
        return open.streamTime() - retention;
    }

    private long segment(long timestamp) {
        return Math.floorDiv(timestamp, interval);
    }

    private static byte[] escaped(Bytes key) {
        return VersionKeys.escaped(Objects.requireNonNull(key, "key cannot be null").get());
    }
}
