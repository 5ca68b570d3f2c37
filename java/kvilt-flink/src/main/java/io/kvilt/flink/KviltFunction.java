package io.kvilt.flink;

import org.apache.flink.api.common.functions.Function;
import org.apache.flink.api.common.functions.RichFunction;
import org.apache.flink.streaming.api.TimeDomain;
import org.apache.flink.util.Collector;

/**
 * What a {@link KviltOperator} does with each event: reads and writes rows of the event's key, and sends results on.
 *
 * <p>It is called by one thread. One that is a {@link RichFunction} too is opened and closed, and has a runtime context.
 * An exception fails the task, and Flink's restart strategy decides what comes then.
 *
 * @param <IN> type of the events
 * @param <OUT> type of the results
 */
@FunctionalInterface
public interface KviltFunction<IN, OUT> extends Function {
    /**
     * Is called for each event.
     *
     * @param rows the rows of the event's key, until this returns
     * @param event the event
     * @param out where results go; they get the timestamp of the event
     * @throws Exception whatever goes wrong; the task fails
     */
    void process(KeyedRows rows, IN event, Collector<OUT> out) throws Exception;

    /**
     * Is called when a timer fires that was set by {@link KeyedRows#timers()}. The default fails.
     *
     * @param rows the rows of the key for which it was set, until this returns
     * @param time what it was set to
     * @param domain which time
     * @param out where results go; those of event time get {@code time} as their timestamp
     * @throws Exception whatever goes wrong; the task fails
     */
    default void onTimer(KeyedRows rows, long time, TimeDomain domain, Collector<OUT> out) throws Exception {
        throw new UnsupportedOperationException(getClass().getName() + " sets timers and has no onTimer");
    }
}
