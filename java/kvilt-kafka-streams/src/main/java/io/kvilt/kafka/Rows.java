package io.kvilt.kafka;

import io.kvilt.KviltIterator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * Rows of a store as they were when they were asked for: those of the engine, and over them those that waited for a
 * commit. One thread at a time may use it.
 *
 * <p>When the store is closed it has nothing left to be closed.
 */
final class Rows implements AutoCloseable {
    /** A range of rows: an engine's snapshot, and a copy of what waited. */
    static final class Part {
        private final KviltIterator engine;
        private final List<Map.Entry<byte[], byte[]>> waiting;
        private int next;

        Part(KviltIterator engine, List<Map.Entry<byte[], byte[]>> waiting) {
            this.engine = engine;
            this.waiting = waiting;
        }

        /** The next row, or null if there is none. */
        private KeyValue<byte[], byte[]> next(boolean isBackward) {
            while (true) {
                byte[] stored = engine.isValid() ? engine.key() : null;
                if (next == waiting.size()) {
                    return stored == null ? null : step(stored, isBackward);
                }
                Map.Entry<byte[], byte[]> waits = waiting.get(next);
                int order = stored == null ? 1 : Arrays.compareUnsigned(stored, waits.getKey());
                if (stored != null && isBackward) {
                    order = -order;
                }
                if (order < 0) {
                    return step(stored, isBackward);
                }
                if (order == 0) {
                    move(isBackward);
                }
                next++;
                if (!Uncommitted.isDeleted(waits.getValue())) {
                    return new KeyValue<>(waits.getKey().clone(), waits.getValue().clone());
                }
            }
        }

        private KeyValue<byte[], byte[]> step(byte[] key, boolean isBackward) {
            KeyValue<byte[], byte[]> row = new KeyValue<>(key, engine.value());
            move(isBackward);
            return row;
        }

        private void move(boolean isBackward) {
            if (isBackward) {
                engine.prev();
            } else {
                engine.next();
            }
        }

        void close() {
            engine.close();
        }
    }

    private final Storage storage;
    private final List<Part> parts;
    private final boolean isBackward;
    private int part;

    /** Whether it ends, and does not fail, when the store is closed: so do Kafka's iterators over windows. */
    private boolean endsWithStore;

    /** In what order the rows of a part come, if not in that of their keys; and which, else null. */
    private Comparator<byte[]> order;

    private Predicate<byte[]> wanted;

    /** What is left of a part whose rows come in an order of their own, or null. */
    private Iterator<KeyValue<byte[], byte[]>> sorted;

    /** Parts in the order in which their rows come. */
    Rows(Storage storage, List<Part> parts, boolean isBackward) {
        this.storage = storage;
        this.parts = parts;
        this.isBackward = isBackward;
    }

    Rows endingWithStore() {
        endsWithStore = true;
        return this;
    }

    /** The rows that are wanted, those of each part in an order of their own. It holds a part's rows in memory. */
    Rows sorted(Predicate<byte[]> wanted, Comparator<byte[]> order) {
        this.wanted = wanted;
        this.order = isBackward ? order.reversed() : order;
        return this;
    }

    /** Whether it still gives rows. */
    private boolean isOpen() {
        if (endsWithStore && !storage.isOpen()) {
            return false;
        }
        storage.check();
        return true;
    }

    /** The next row, or null if there is none. */
    KeyValue<byte[], byte[]> next() {
        if (!isOpen()) {
            return null;
        }
        try {
            for (; part < parts.size(); part++) {
                KeyValue<byte[], byte[]> row = next(parts.get(part));
                if (row != null) {
                    return row;
                }
            }
            return null;
        } catch (RuntimeException e) {
            if (endsWithStore && !storage.isOpen()) {
                return null;
            }
            throw storage.failure("scan", e);
        }
    }

    private KeyValue<byte[], byte[]> next(Part part) {
        if (order == null) {
            return part.next(isBackward);
        }
        if (sorted == null) {
            List<KeyValue<byte[], byte[]>> rows = new ArrayList<>();
            for (var row = part.next(isBackward); row != null; row = part.next(isBackward)) {
                if (wanted.test(row.key)) {
                    rows.add(row);
                }
            }
            rows.sort((a, b) -> order.compare(a.key, b.key));
            sorted = rows.iterator();
        }
        if (sorted.hasNext()) {
            return sorted.next();
        }
        sorted = null;
        return null;
    }

    @Override
    public void close() {
        parts.forEach(Part::close);
    }

    /** Rows as Kafka reads them, with keys decoded; a row whose key decodes to null is passed over. */
    <K> KeyValueIterator<K, byte[]> as(Function<byte[], K> decoder) {
        return new Decoded<>(this, decoder);
    }

    /** As {@link #as}, where the key is the begin of a window. */
    WindowStoreIterator<byte[]> asWindows(Function<byte[], Long> decoder) {
        return new Windows(this, decoder);
    }

    private static class Decoded<K> implements KeyValueIterator<K, byte[]> {
        private final Rows rows;
        private final Function<byte[], K> decoder;
        private KeyValue<K, byte[]> row;
        private boolean isClosed;

        Decoded(Rows rows, Function<byte[], K> decoder) {
            this.rows = rows;
            this.decoder = decoder;
        }

        @Override
        public boolean hasNext() {
            if (isClosed) {
                throw new InvalidStateStoreException("The iterator is closed");
            }
            if (row != null) {
                return rows.isOpen();
            }
            for (KeyValue<byte[], byte[]> next = rows.next(); next != null; next = rows.next()) {
                K key = decoder.apply(next.key);
                if (key != null) {
                    row = new KeyValue<>(key, next.value);
                    return true;
                }
            }
            return false;
        }

        @Override
        public KeyValue<K, byte[]> next() {
            KeyValue<K, byte[]> next = peek();
            row = null;
            return next;
        }

        @Override
        public K peekNextKey() {
            return peek().key;
        }

        private KeyValue<K, byte[]> peek() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return row;
        }

        @Override
        public void close() {
            isClosed = true;
            rows.close();
        }
    }

    private static final class Windows extends Decoded<Long> implements WindowStoreIterator<byte[]> {
        Windows(Rows rows, Function<byte[], Long> decoder) {
            super(rows, decoder);
        }
    }
}
