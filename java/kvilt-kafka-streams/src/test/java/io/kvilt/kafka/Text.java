package io.kvilt.kafka;

import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;

/** What stores return, as text to compare. */
final class Text {
    private Text() {}

    /** All that an iterator gives, as text, closed. */
    static <K> List<String> of(KeyValueIterator<K, byte[]> rows) {
        List<String> texts = new ArrayList<>();
        try (rows) {
            while (rows.hasNext()) {
                Object peeked = rows.peekNextKey();
                KeyValue<K, byte[]> row = rows.next();
                if (!peeked.equals(row.key)) {
                    throw new IllegalStateException(peeked + " was peeked, and " + row.key + " came");
                }
                texts.add(row.key + "=" + of(row.value));
            }
        }
        return texts;
    }

    static String of(byte[] value) {
        return value == null ? "null" : HexFormat.of().formatHex(value);
    }
}
