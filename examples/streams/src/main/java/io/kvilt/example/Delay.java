package io.kvilt.example;

import io.kvilt.example.Flights.Flight;
import java.nio.ByteBuffer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/**
 * What is known of the flights of an airport in an hour: the value of a row of the store.
 *
 * @param flights how many should have left
 * @param cancelled how many of them never did
 * @param sum minutes of delay of all others together
 * @param max minutes of the longest delay; the least number if no flight left
 */
record Delay(int flights, int cancelled, int sum, int max) {
    static final Delay NONE = new Delay(0, 0, 0, Integer.MIN_VALUE);

    Delay with(Flight flight) {
        return flight.delay() == null
                ? new Delay(flights + 1, cancelled + 1, sum, max)
                : new Delay(flights + 1, cancelled, sum + flight.delay(), Math.max(max, flight.delay()));
    }

    /** Minutes; not a number if no flight left. */
    double mean() {
        return (double) sum / (flights - cancelled);
    }

    /** Four numbers of four bytes. */
    static Serde<Delay> serde() {
        return Serdes.serdeFrom(
                (topic, delay) -> delay == null
                        ? null
                        : ByteBuffer.allocate(4 * Integer.BYTES)
                                .putInt(delay.flights)
                                .putInt(delay.cancelled)
                                .putInt(delay.sum)
                                .putInt(delay.max)
                                .array(),
                (topic, bytes) -> {
                    if (bytes == null) {
                        return null;
                    }
                    ByteBuffer numbers = ByteBuffer.wrap(bytes);
                    return new Delay(numbers.getInt(), numbers.getInt(), numbers.getInt(), numbers.getInt());
                });
    }
}
