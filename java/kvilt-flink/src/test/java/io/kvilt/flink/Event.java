package io.kvilt.flink;

import org.apache.flink.util.Collector;

/**
 * An event that says what to do with the rows of its user.
 *
 * @param user the key
 * @param act what to do
 */
record Event(String user, Act act) {
    interface Act {
        void with(KeyedRows rows, Collector<String> out) throws Exception;
    }

    static Event of(String user, Act act) {
        return new Event(user, act);
    }

    /** Does what each event says. */
    static final KviltFunction<Event, String> OBEY = (rows, event, out) -> event.act().with(rows, out);
}
