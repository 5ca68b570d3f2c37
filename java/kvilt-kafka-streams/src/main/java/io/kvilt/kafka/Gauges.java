package io.kvilt.kafka;

import io.kvilt.Kvilt;
import io.kvilt.Stats;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.DoubleSupplier;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.Sensor.RecordingLevel;
import org.apache.kafka.streams.StreamsMetrics;

/**
 * Kvilt's figures of a store among Kafka's metrics, in a group of their own: a name that Kafka gives a metric of its
 * own, as 4.4 did, would keep the store from being opened.
 *
 * <p>How often and how fast Kafka calls a store it measures itself, for every kind of store. What is added: how long
 * commits take, and what the engine says of itself.
 */
final class Gauges {
    private static final String GROUP = "stream-kvilt-metrics";

    /** How old figures may be that are asked for one by one. */
    private static final long AGE_MAX_NS = 1_000_000_000;

    private final StreamsMetrics metrics;
    private final Kvilt db;
    private final List<Sensor> sensors = new ArrayList<>();
    private final Sensor commits;

    private Stats stats;
    private long statsAt;

    Gauges(
            StreamsMetrics metrics,
            String task,
            String scope,
            String name,
            Kvilt db,
            DoubleSupplier uncommittedBytes) {
        this.metrics = metrics;
        this.db = db;
        String entity = task + "." + name;
        commits = metrics.addLatencyRateTotalSensor("kvilt", entity, "commit", RecordingLevel.INFO);
        sensors.add(commits);
        Sensor sensor = metrics.addSensor("kvilt." + entity + ".figures", RecordingLevel.INFO);
        sensors.add(sensor);
        // Kafka's own tags of a store. The thread's name has the client's, so two applications tell of two.
        Map<String, String> tags = Map.of(
                "thread-id", Thread.currentThread().getName(), "task-id", task, scope + "-state-id", name);
        sensor.add(
                new MetricName("uncommitted-bytes", GROUP, "Bytes of writes held back until the commit", tags),
                new Figure(uncommittedBytes));
        read().figures().values().forEach(figure -> {
            String kafkaName = figure.name().replace('_', '-');
            sensor.add(
                    new MetricName(kafkaName, GROUP, figure.help(), tags),
                    new Figure(() -> read().figures().get(figure.name()).value()));
        });
    }

    /** Tells of a commit that began at so many nanoseconds. */
    void committed(long begin) {
        commits.record(System.nanoTime() - begin);
    }

    void remove() {
        sensors.forEach(metrics::removeSensor);
    }

    private synchronized Stats read() {
        long now = System.nanoTime();
        if (stats == null || now - statsAt > AGE_MAX_NS) {
            stats = db.stats();
            statsAt = now;
        }
        return stats;
    }

    /** What is measured when somebody asks, and records nothing. */
    private record Figure(DoubleSupplier value) implements MeasurableStat {
        @Override
        public double measure(MetricConfig config, long now) {
            try {
                return value.getAsDouble();
            } catch (RuntimeException e) {
                // The store was closed meanwhile.
                return Double.NaN;
            }
        }

        @Override
        public void record(MetricConfig config, double value, long now) {}
    }
}
