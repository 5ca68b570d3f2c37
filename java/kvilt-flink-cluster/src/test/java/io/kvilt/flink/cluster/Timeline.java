package io.kvilt.flink.cluster;

import io.kvilt.KeyRange;
import io.kvilt.flink.KeyedIterator;
import io.kvilt.flink.KeyedRows;
import io.kvilt.flink.KviltFunction;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.streaming.api.TimeDomain;
import org.apache.flink.util.Collector;

/**
 * Keeps the events of each user, in order, with how many times each came; at the end of the stream writes to a file of
 * the user's how many there are, and how many came more than once.
 */
final class Timeline implements KviltFunction<Long, String> {
    private static final long serialVersionUID = 1;

    private final String results;

    Timeline(Path results) {
        this.results = results.toString();
    }

    @Override
    public void process(KeyedRows rows, Long event, Collector<String> out) {
        byte[] key = ByteBuffer.allocate(Long.BYTES).putLong(event).array();
        byte[] known = rows.get(key);
        int times = known == null ? 0 : ByteBuffer.wrap(known).getInt();
        rows.put(key, ByteBuffer.allocate(100).putInt(times + 1).array());
        // The last watermark of a stream that ends fires it.
        rows.timers().registerEventTimeTimer(Long.MAX_VALUE);
    }

    @Override
    public void onTimer(KeyedRows rows, long time, TimeDomain domain, Collector<String> out) throws IOException {
        long count = 0;
        long twice = 0;
        long last = -1;
        try (KeyedIterator all = rows.scan(KeyRange.all())) {
            for (; all.isValid(); all.next()) {
                long event = ByteBuffer.wrap(all.key()).getLong();
                if (event <= last) {
                    throw new IllegalStateException(event + " comes behind " + last);
                }
                last = event;
                count++;
                if (ByteBuffer.wrap(all.value()).getInt() != 1) {
                    twice++;
                }
            }
        }
        Files.writeString(Path.of(results, rows.<String>key()), count + " " + twice + " " + last);
    }
}
