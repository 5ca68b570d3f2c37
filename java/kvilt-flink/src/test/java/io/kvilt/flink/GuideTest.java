package io.kvilt.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.KeyRange;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The example of {@code docs/guide/scale.md}, as a job. */
class GuideTest {
    static final long HOUR = 3_600_000;
    static final long DAY = 24 * HOUR;

    /** What Flink sends in its own format. */
    public static final class Event {
        public String user;
        public long time;
        public long id;
        public long amount;

        public Event() {}

        Event(String user, long time, long id, long amount) {
            this.user = user;
            this.time = time;
            this.id = id;
            this.amount = amount;
        }

        String user() {
            return user;
        }

        long time() {
            return time;
        }

        long id() {
            return id;
        }

        long amount() {
            return amount;
        }
    }

    private static byte[] bytes(long... numbers) {
        ByteBuffer bytes = ByteBuffer.allocate(Long.BYTES * numbers.length);
        bytes.asLongBuffer().put(numbers);
        return bytes.array();
    }

    private static long number(byte[] bytes) {
        return ByteBuffer.wrap(bytes).getLong();
    }

    @ParameterizedTest
    @EnumSource(
            value = RuntimeExecutionMode.class,
            names = {"STREAMING", "BATCH"})
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void the_example_of_the_guide_sums_an_hour(RuntimeExecutionMode mode) throws Exception {
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(1, new Configuration());
        job.setRuntimeMode(mode);
        DataStream<Event> events = job.fromData(
                // In the first hour of all, and two in one millisecond.
                new Event("ada", 10_000, 1, 1),
                new Event("ada", 10_000, 2, 2),
                new Event("bob", 10_000, 3, 10),
                new Event("ada", 10_000 + HOUR, 4, 4),
                new Event("ada", 10_001 + HOUR, 5, 8),
                // One that comes late, and one of the next day.
                new Event("ada", 10_000 + HOUR / 2, 6, 16),
                new Event("bob", 10_001 + DAY, 7, 20));
        DataStream<String> visits = events.keyBy(Event::user)
                .transform("timeline", Types.STRING, new KviltOperator<>((rows, event, out) -> {
                    rows.put(bytes(event.time(), event.id()), bytes(event.amount()));
                    KeyRange range = KeyRange.of(bytes(Math.max(0, event.time() - HOUR)), bytes(event.time() + 1));
                    long sum = 0;
                    try (KeyedIterator hour = rows.scan(range)) {
                        for (; hour.isValid(); hour.next()) {
                            sum += number(hour.value());
                        }
                    }
                    rows.deleteRange(KeyRange.lessThan(bytes(Math.max(0, event.time() - DAY))));
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
                        "ada has spent 12 in the hour to 3610001",
                        "ada has spent 19 in the hour to 1810000",
                        "ada has spent 3 in the hour to 10000",
                        "ada has spent 7 in the hour to 3610000",
                        "bob has spent 10 in the hour to 10000",
                        "bob has spent 20 in the hour to 86410001"),
                told.stream().sorted().toList());
    }

    @Test
    void the_example_of_the_guide_is_the_one_that_is_run() throws IOException {
        String guide = Files.readString(Path.of("..", "..", "docs", "guide", "scale.md"));
        int flink = guide.indexOf("## Flink");
        int start = guide.indexOf("```java", flink) + "```java".length();
        String example = guide.substring(start, guide.indexOf("```", start));
        String here = squeezed(Files.readString(Path.of("src/test/java/io/kvilt/flink/GuideTest.java")));
        String[] pieces = example.strip().split("\n\n");
        assertEquals(4, pieces.length);
        for (String piece : pieces) {
            assertTrue(here.contains(squeezed(piece)), piece);
        }
    }

    /** Without comments and white space. */
    private static String squeezed(String java) {
        return java.replaceAll("//.*", "").replaceAll("\\s", "");
    }
}
