package io.kvilt.flink;

import io.kvilt.Kvilt;
import io.kvilt.Stats;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;

/** Kvilt's figures of a store among Flink's metrics of the operator, in the group {@code kvilt}. */
final class Gauges {
    private static final String GROUP = "kvilt";

    /** How old figures may be that are asked for one by one. */
    private static final long AGE_MAX_NS = 1_000_000_000;

    /** Of the last snapshot that was written. */
    final AtomicLong snapshotRows = new AtomicLong();

    final AtomicLong snapshotBytes = new AtomicLong();

    private final Kvilt db;
    private Stats stats;
    private long statsAt;

    Gauges(MetricGroup operator, Kvilt db) {
        this.db = db;
        MetricGroup group = operator.addGroup(GROUP);
        group.gauge("snapshot_rows", (Gauge<Long>) snapshotRows::get);
        group.gauge("snapshot_bytes", (Gauge<Long>) snapshotBytes::get);
        for (String name : read().figures().keySet()) {
            group.gauge(name, (Gauge<Long>) () -> value(name));
        }
    }

    /** Zero when the store is closed, as Flink may ask until the task is gone. */
    private long value(String name) {
        try {
            return read().get(name);
        } catch (RuntimeException e) {
            return 0;
        }
    }

    private synchronized Stats read() {
        long now = System.nanoTime();
        if (stats == null || now - statsAt > AGE_MAX_NS) {
            stats = db.stats();
            statsAt = now;
        }
        return stats;
    }
}
