package io.kvilt.kafka;

import java.util.Objects;
import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;

/** Values by key and session. {@link Keys} draws the rows; a session lies in the segment of its end. */
final class KviltSessionStore extends SegmentedStore implements SessionStore<Bytes, byte[]> {
    KviltSessionStore(String name, long retention) {
        super(name, "session", retention, interval(retention), Keys.SESSION_TAIL);
    }

    @Override
    public void put(Windowed<Bytes> session, byte[] aggregate) {
        put(row(session), session.window().end(), aggregate);
    }

    @Override
    public void remove(Windowed<Bytes> session) {
        remove(row(session), session.window().end());
    }

    @Override
    public byte[] fetchSession(Bytes key, long begin, long end) {
        byte[] bytes = bytes(key);
        if (end < firstLive() || !hasSegment(end)) {
            return null;
        }
        return storage().get(Keys.session(segment(end), bytes, begin, end));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long endsFrom, long beginsTo) {
        return find(key, endsFrom, beginsTo, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(Bytes key, long endsFrom, long beginsTo) {
        return find(key, endsFrom, beginsTo, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes keyFrom, Bytes keyTo, long endsFrom, long beginsTo) {
        return find(keyFrom, keyTo, endsFrom, beginsTo, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes keyFrom, Bytes keyTo, long endsFrom, long beginsTo) {
        return find(keyFrom, keyTo, endsFrom, beginsTo, true);
    }

    /**
     * Sessions that end from one time to another, by time, for results that are given when sessions are over: what is
     * downstream would drop an early session behind a late one.
     */
    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(long endsFrom, long endsTo) {
        // Those that are just over are expired, too, when Kafka asks for them.
        Function<byte[], Windowed<Bytes>> decode = row -> session(row, endsFrom, endsTo, Long.MAX_VALUE);
        return rows(null, null, null, endsFrom, endsTo, false)
                .sorted(row -> decode.apply(row) != null, Keys.SESSIONS_BY_TIME)
                .as(decode);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return findSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return backwardFindSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo) {
        return findSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo) {
        return backwardFindSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> find(
            Bytes key, long endsFrom, long beginsTo, boolean isBackward) {
        byte[] bytes = bytes(key);
        long first = Math.max(endsFrom, firstLive());
        Function<byte[], Windowed<Bytes>> decode = row -> Keys.isOf(row, bytes, Keys.SESSION_TAIL)
                ? session(row, first, Long.MAX_VALUE, beginsTo)
                : null;
        return rows(bytes, null, null, first, Long.MAX_VALUE, isBackward).as(decode);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> find(
            Bytes keyFrom, Bytes keyTo, long endsFrom, long beginsTo, boolean isBackward) {
        if (isEmptyRange(keyFrom, keyTo)) {
            return none().as(row -> null);
        }
        long first = Math.max(endsFrom, firstLive());
        Function<byte[], Windowed<Bytes>> decode =
                row -> isBetween(row, keyFrom, keyTo) ? session(row, first, Long.MAX_VALUE, beginsTo) : null;
        return rows(null, keyFrom, keyTo, first, Long.MAX_VALUE, isBackward).as(decode);
    }

    /** The session of a row, or null if it does not end and begin in time. */
    private static Windowed<Bytes> session(byte[] row, long endsFrom, long endsTo, long beginsTo) {
        long end = Keys.time(row, Keys.SESSION_TAIL);
        long begin = Keys.sessionBegin(row);
        boolean isWanted = endsFrom <= end && end <= endsTo && begin <= beginsTo;
        return isWanted ? new Windowed<>(Keys.key(row, Keys.SESSION_TAIL), new SessionWindow(begin, end)) : null;
    }

    private byte[] row(Windowed<Bytes> session) {
        Objects.requireNonNull(session, "sessionKey cannot be null");
        long end = session.window().end();
        return Keys.session(segment(end), bytes(session.key()), session.window().start(), end);
    }

    private static byte[] bytes(Bytes key) {
        return Objects.requireNonNull(key, "key cannot be null").get();
    }
}
