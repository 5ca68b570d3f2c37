package io.kvilt.kafka;

import io.kvilt.kafka.Storage.Range;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A map from keys to values: keys of rows are Kafka's keys. */
class KviltKeyValueStore extends KviltStore implements KeyValueStore<Bytes, byte[]> {
    private static final Logger LOG = LoggerFactory.getLogger(KviltKeyValueStore.class);

    KviltKeyValueStore(String name) {
        this(name, "key-value");
    }

    private KviltKeyValueStore(String name, String kind) {
        super(name, kind);
    }

    /** One whose values begin with a timestamp; the marker makes Kafka restore them so. */
    static final class Timestamped extends KviltKeyValueStore implements TimestampedBytesStore {
        Timestamped(String name) {
            super(name, "key-value timestamped");
        }
    }

    @Override
    void restored(ConsumerRecord<byte[], byte[]> record, List<Map.Entry<byte[], byte[]>> rows) {
        rows.add(new Row(record.key(), record.value()));
    }

    @Override
    public void put(Bytes key, byte[] value) {
        storage().put(bytes(key), value);
    }

    @Override
    public byte[] putIfAbsent(Bytes key, byte[] value) {
        byte[] before = get(key);
        if (before == null && value != null) {
            put(key, value);
        }
        return before;
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        List<Map.Entry<byte[], byte[]>> rows = new ArrayList<>(entries.size());
        for (KeyValue<Bytes, byte[]> entry : entries) {
            rows.add(new Row(bytes(entry.key), entry.value));
        }
        storage().putAll(rows);
    }

    @Override
    public byte[] delete(Bytes key) {
        byte[] before = get(key);
        put(key, null);
        return before;
    }

    @Override
    public byte[] get(Bytes key) {
        return storage().get(bytes(key));
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return range(from, to, false);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return range(from, to, true);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return range(null, null, false);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return range(null, null, true);
    }

    @Override
    public <PS extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(P prefix, PS serializer) {
        Objects.requireNonNull(prefix, "prefix cannot be null");
        Objects.requireNonNull(serializer, "prefixKeySerializer cannot be null");
        byte[] first = serializer.serialize(null, prefix);
        return scan(new Range(first, Keys.behindPrefix(first)), false);
    }

    @Override
    public long approximateNumEntries() {
        return storage().rows();
    }

    private KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to, boolean isBackward) {
        if (from != null && to != null && from.compareTo(to) > 0) {
            LOG.warn(Keys.WRONG_RANGE);
        }
        byte[] end = to == null ? null : Arrays.copyOf(to.get(), to.get().length + 1);
        return scan(new Range(from == null ? Keys.NONE : from.get(), end), isBackward);
    }

    private KeyValueIterator<Bytes, byte[]> scan(Range range, boolean isBackward) {
        return storage().scan(List.of(range), isBackward).as(Bytes::wrap);
    }

    private static byte[] bytes(Bytes key) {
        return Objects.requireNonNull(key, "key cannot be null").get();
    }
}
