package io.kvilt.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.KeyRange;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AbstractRichFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A job on a cluster in this process, whose function fails twice. */
class JobTest {
    private static final int EVENTS = 6_000;
    private static final int USERS = 30;

    /** The source waits for a checkpoint behind so many: when the function fails, three or more have been completed. */
    private static final int EVENTS_A_CHECKPOINT = EVENTS / 12;

    /** Of the function, wherever it is: all subtasks are in this process. */
    private static final AtomicInteger LAST_ATTEMPT = new AtomicInteger();

    /** Rows of an earlier attempt that were found. */
    private static final AtomicInteger RESTORED = new AtomicInteger();

    @TempDir
    Path directory;

    @Test
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void each_event_counts_once_although_the_job_fails() throws Exception {
        LAST_ATTEMPT.set(0);
        RESTORED.set(0);
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "5");
        settings.setString("restart-strategy.fixed-delay.delay", "50 ms");
        settings.setString("execution.checkpointing.interval", "150 ms");
        settings.setString(
                "execution.checkpointing.dir", directory.resolve("checkpoints").toUri().toString());
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(3, settings);
        job.setMaxParallelism(16);
        Map<String, TreeMap<Integer, Integer>> results = new HashMap<>();
        try (CloseableIterator<String> numbered = job.fromSource(
                        new DataGeneratorSource<>(
                                JobTest::slowly,
                                EVENTS,
                                RateLimiterStrategy.perCheckpoint(EVENTS_A_CHECKPOINT),
                                Types.LONG),
                        WatermarkStrategy.noWatermarks(),
                        "events")
                .keyBy(event -> "user" + event % USERS)
                .transform(
                        "timeline",
                        Types.STRING,
                        new KviltOperator<>(new Numbers())
                                .setDirectory(directory.resolve("stores").toString())
                                .setMemoryBudget(32 << 20))
                .uid("timeline")
                .executeAndCollect()) {
            while (numbered.hasNext()) {
                String[] parts = numbered.next().split(" ");
                results.computeIfAbsent(parts[0], user -> new TreeMap<>())
                        .merge(Integer.valueOf(parts[1]), 1, Integer::sum);
            }
        }
        assertTrue(LAST_ATTEMPT.get() >= 2, "the function did not fail");
        assertTrue(RESTORED.get() > 0, "no rows were restored");
        assertEquals(USERS, results.size());
        results.forEach((user, numbers) -> {
            assertEquals(EVENTS / USERS, numbers.size(), user);
            assertEquals(EVENTS / USERS - 1, numbers.lastKey(), user);
            assertTrue(numbers.values().stream().allMatch(times -> times == 1), user + " " + numbers);
        });
        try (Stream<Path> left = Files.list(directory.resolve("stores"))) {
            assertEquals(0, left.count());
        }
    }

    /** A millisecond an event: a subtask's share of those behind a checkpoint takes longer than until the next begins. */
    private static Long slowly(Long event) throws InterruptedException {
        Thread.sleep(1);
        return event;
    }

    /** Numbers the events of each user; the first two attempts fail in the middle. */
    private static final class Numbers extends AbstractRichFunction implements KviltFunction<Long, String> {
        private static final long serialVersionUID = 1;

        @Override
        public void process(KeyedRows rows, Long event, Collector<String> out) {
            int attempt = getRuntimeContext().getTaskInfo().getAttemptNumber();
            LAST_ATTEMPT.accumulateAndGet(attempt, Math::max);
            int number = 0;
            try (KeyedIterator last = rows.scanReverse(KeyRange.all(), 1)) {
                if (last.isValid()) {
                    number = ByteBuffer.wrap(last.key()).getInt() + 1;
                    if (ByteBuffer.wrap(last.value()).getInt() < attempt) {
                        RESTORED.incrementAndGet();
                    }
                }
            }
            if (attempt < 2 && number >= EVENTS / USERS / 3 * (attempt + 1)) {
                throw new IllegalStateException("a failure that is wanted");
            }
            rows.put(
                    ByteBuffer.allocate(4).putInt(number).array(),
                    ByteBuffer.allocate(12).putInt(attempt).putLong(event).array());
            out.collect(rows.key() + " " + number);
        }
    }
}
