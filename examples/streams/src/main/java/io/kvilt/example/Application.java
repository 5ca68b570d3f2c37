package io.kvilt.example;

import io.kvilt.example.Flights.Flight;
import io.kvilt.kafka.KviltConfig;
import io.kvilt.kafka.KviltStores;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;

/** The application's topology and settings: this is what one writes oneself. */
final class Application {
    /** Lines of flights, with the airport as the key. */
    static final String TOPIC = "flights";

    /** The window store: a row for each airport and hour. */
    static final String STORE = "delays";

    private static final Duration HOUR = Duration.ofHours(1);

    /** Those that never left stand at the end of their day in the file. */
    private static final Duration GRACE = Duration.ofDays(2);

    private static final Duration RETENTION = Duration.ofDays(60);

    private Application() {}

    static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> consumed = Consumed.with(Serdes.String(), Serdes.String())
                .withTimestampExtractor((line, before) -> Flight.of((String) line.value()).time());
        builder.stream(TOPIC, consumed)
                .mapValues(Flight::of)
                .groupByKey(Grouped.keySerde(Serdes.String()))
                .windowedBy(TimeWindows.ofSizeAndGrace(HOUR, GRACE))
                .aggregate(
                        () -> Delay.NONE,
                        (airport, flight, delay) -> delay.with(flight),
                        Materialized.<String, Delay>as(KviltStores.timestampedWindow(STORE, RETENTION, HOUR, false))
                                .withKeySerde(Serdes.String())
                                .withValueSerde(Delay.serde())
                                // By the clock, brokers would delete a changelog of 2013.
                                .withLoggingEnabled(Map.of(TopicConfig.RETENTION_MS_CONFIG, "-1")));
        return builder.build();
    }

    static Properties settings(String brokers, Path state) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "delays");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        // Each flight is counted once, whatever is killed, and a start replays the tail of the changelog only.
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put("enable.transactional.statestores", true);
        // Memory for all stores, outside of Java's heap.
        settings.put(KviltConfig.MEMORY_BUDGET_BYTES_CONFIG, 32 << 20);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        return settings;
    }
}
