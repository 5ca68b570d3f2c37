package io.kvilt.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.KeyRange;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.LongSummaryStatistics;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.streaming.api.TimeDomain;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The same bounded job in both of Flink's modes of execution: batch sorts the events by key and takes no checkpoints. */
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class BatchTest {
    private static final int EVENTS = 5_000;
    private static final int USERS = 40;

    /** How often a subtask got an event of another key than the one before: all subtasks are in this process. */
    private static final AtomicInteger CHANGES_OF_KEY = new AtomicInteger();

    @TempDir
    Path directory;

    @Test
    void a_bounded_job_has_the_same_results_as_a_batch() throws Exception {
        CHANGES_OF_KEY.set(0);
        List<String> expected = new ArrayList<>();
        for (int user = 0; user < USERS; user++) {
            long first = user;
            LongSummaryStatistics events = LongStream.range(0, EVENTS)
                    .filter(event -> event % USERS == first)
                    .summaryStatistics();
            expected.add("user" + user + " has " + events.getCount() + " rows, their sum is " + events.getSum());
        }
        Collections.sort(expected);
        assertEquals(expected, results("STREAMING"));
        assertTrue(CHANGES_OF_KEY.getAndSet(0) > USERS);
        assertEquals(expected, results("BATCH"));
        assertEquals(USERS, CHANGES_OF_KEY.get(), "the events were not sorted by key");
    }

    private List<String> results(String mode) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.runtime-mode", mode);
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(3, settings);
        List<String> results = new ArrayList<>();
        try (CloseableIterator<String> found = job.fromSource(
                        new DataGeneratorSource<>(event -> event, EVENTS, Types.LONG),
                        WatermarkStrategy.<Long>forMonotonousTimestamps()
                                .withTimestampAssigner((event, before) -> event),
                        "events")
                .keyBy(event -> "user" + event % USERS)
                .transform(
                        "rows",
                        Types.STRING,
                        new KviltOperator<>(new AtTheEnd())
                                .setDirectory(directory.toString())
                                .setMemoryBudget(32 << 20))
                .uid("rows")
                .executeAndCollect()) {
            found.forEachRemaining(results::add);
        }
        try (Stream<Path> left = Files.list(directory)) {
            assertEquals(0, left.count(), "stores are left");
        }
        Collections.sort(results);
        return results;
    }

    /** Keeps each event in a row; a timer behind all events counts and adds the rows of its key. */
    private static final class AtTheEnd implements KviltFunction<Long, String> {
        private static final long serialVersionUID = 1;

        private transient String last;

        @Override
        public void process(KeyedRows rows, Long event, Collector<String> out) {
            if (!rows.key().equals(last)) {
                last = rows.key();
                CHANGES_OF_KEY.incrementAndGet();
            }
            rows.put(ByteBuffer.allocate(8).putLong(event).array(), new byte[0]);
            rows.timers().registerEventTimeTimer(EVENTS);
        }

        @Override
        public void onTimer(KeyedRows rows, long timestamp, TimeDomain domain, Collector<String> out) {
            long count = 0;
            long sum = 0;
            try (KeyedIterator events = rows.scan(KeyRange.all())) {
                for (; events.isValid(); events.next()) {
                    count++;
                    sum += ByteBuffer.wrap(events.key()).getLong();
                }
            }
            out.collect(rows.key() + " has " + count + " rows, their sum is " + sum);
        }
    }
}
