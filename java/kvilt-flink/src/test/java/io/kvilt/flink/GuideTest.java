package io.kvilt.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.kvilt.KeyRange;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The example of {@code docs/guide/scale.md}, as a job. */
class GuideTest {
    private static final long HOUR = 60;
    private static final long DAY = 24 * HOUR;

    /** What Flink sends in its own format. */
    public static final class Event {
        public String user;
        public long time;
        public long amount;

        public Event() {}

        Event(String user, long time, long amount) {
            this.user = user;
            this.time = time;
            this.amount = amount;
        }

        String user() {
            return user;
        }

        long time() {
            return time;
        }

        long amount() {
            return amount;
        }
    }

    private static byte[] bytes(long number) {
        return ByteBuffer.allocate(Long.BYTES).putLong(number).array();
    }

    private static long number(byte[] bytes) {
        return ByteBuffer.wrap(bytes).getLong();
    }

    @ParameterizedTest
    @EnumSource(
            value = RuntimeExecutionMode.class,
            names = {"STREAMING", "BATCH"})
    @Timeout(120)
    void the_example_of_the_guide_sums_an_hour(RuntimeExecutionMode mode) throws Exception {
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(1, new Configuration());
        job.setRuntimeMode(mode);
        DataStream<Event> events = job.fromData(
                new Event("ada", 10_000, 1),
                new Event("bob", 10_000, 10),
                new Event("ada", 10_030, 2),
                new Event("ada", 10_061, 4),
                new Event("bob", 10_061, 20),
                new Event("ada", 20_000, 8));
        DataStream<String> visits = events.keyBy(Event::user)
                .transform("timeline", Types.STRING, new KviltOperator<>((rows, event, out) -> {
                    rows.put(bytes(event.time()), bytes(event.amount()));
                    long sum = 0;
                    try (KeyedIterator hour = rows.scan(KeyRange.atLeast(bytes(event.time() - HOUR)))) {
                        for (; hour.isValid(); hour.next()) {
                            sum += number(hour.value());
                        }
                    }
                    rows.deleteRange(KeyRange.lessThan(bytes(event.time() - DAY)));
                    out.collect(event.user() + " has spent " + sum + " in the hour to " + event.time());
                }))
                .uid("timeline");
        List<String> told = new ArrayList<>();
        try (CloseableIterator<String> results = visits.executeAndCollect()) {
            results.forEachRemaining(told::add);
        }
        assertEquals(
                List.of(
                        "ada has spent 1 in the hour to 10000",
                        "ada has spent 3 in the hour to 10030",
                        "ada has spent 6 in the hour to 10061",
                        "ada has spent 8 in the hour to 20000",
                        "bob has spent 10 in the hour to 10000",
                        "bob has spent 20 in the hour to 10061"),
                told.stream().sorted().toList());
    }
}
