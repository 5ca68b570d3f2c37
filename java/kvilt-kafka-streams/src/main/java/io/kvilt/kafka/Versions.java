package io.kvilt.kafka;

import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;

/** Versions of a key, in the order of their rows or against it. One thread at a time may use it. */
abstract class Versions implements VersionedRecordIterator<byte[]> {
    private static final long NONE = VersionedKeyValueStore.PUT_RETURN_CODE_VALID_TO_UNDEFINED;

    private final AutoCloseable rows;
    private VersionedRecord<byte[]> next;
    private boolean isClosed;

    private Versions(AutoCloseable rows) {
        this.rows = rows;
    }

    static Versions of(List<VersionedRecord<byte[]>> records) {
        Iterator<VersionedRecord<byte[]>> all = records.iterator();
        return new Versions(() -> {}) {
            @Override
            VersionedRecord<byte[]> advance() {
                return all.hasNext() ? all.next() : null;
            }
        };
    }

    /**
     * Those that rows have, the newest first. If this throws, the rows are closed.
     *
     * @param first no version that ended before or at this moment
     * @param validTo where the first one ends
     */
    static Versions descending(Rows rows, long first, long validTo) {
        try {
            return new Versions(rows::close) {
                private long end = validTo;

                @Override
                VersionedRecord<byte[]> advance() {
                    for (KeyValue<byte[], byte[]> row = rows.next(); row != null; row = rows.next()) {
                        long ends = end;
                        if (ends != NONE && ends <= first) {
                            return null;
                        }
                        end = VersionKeys.timestamp(row.key);
                        if (!VersionKeys.isDeletion(row.value)) {
                            return record(row, ends);
                        }
                    }
                    return null;
                }
            };
        } catch (Throwable e) {
            rows.close();
            throw e;
        }
    }

    /**
     * Those that rows have, the oldest first. If this throws, the rows are closed.
     *
     * @param first no version that ended before or at this moment
     * @param to no version that began behind this moment
     */
    static Versions ascending(Rows rows, long first, long to) {
        try {
            return new Versions(rows::close) {
                private KeyValue<byte[], byte[]> row = rows.next();

                @Override
                VersionedRecord<byte[]> advance() {
                    while (row != null && VersionKeys.timestamp(row.key) <= to) {
                        KeyValue<byte[], byte[]> version = row;
                        row = rows.next();
                        long ends = row == null ? NONE : VersionKeys.timestamp(row.key);
                        boolean isSeen = ends == NONE || ends > first;
                        if (isSeen && !VersionKeys.isDeletion(version.value)) {
                            return record(version, ends);
                        }
                    }
                    return null;
                }
            };
        } catch (Throwable e) {
            rows.close();
            throw e;
        }
    }

    /** A row as Kafka has it. */
    static VersionedRecord<byte[]> record(KeyValue<byte[], byte[]> row, long validTo) {
        byte[] value = VersionKeys.value(row.value);
        long timestamp = VersionKeys.timestamp(row.key);
        return validTo == NONE
                ? new VersionedRecord<>(value, timestamp)
                : new VersionedRecord<>(value, timestamp, validTo);
    }

    /** The next one, or null. */
    abstract VersionedRecord<byte[]> advance();

    @Override
    public boolean hasNext() {
        if (isClosed) {
            throw new IllegalStateException("The iterator is closed");
        }
        if (next == null) {
            next = advance();
        }
        return next != null;
    }

    @Override
    public VersionedRecord<byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        VersionedRecord<byte[]> given = next;
        next = null;
        return given;
    }

    @Override
    public void close() {
        isClosed = true;
        try {
            rows.close();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
