package io.kvilt.kafka.cluster;

import io.kvilt.kafka.KviltStores;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.StandbyUpdateListener;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

/**
 * An application's process: numbers the events of each user, keeps them in order, and tells of each once.
 *
 * <p>Writes lines: {@code state RUNNING}, {@code begin partition offset} where a store begins to be restored or
 * followed, and {@code rows n} for the line {@code scan} of its input. Ends when its input does.
 */
public final class Instance {
    private static final String STORE = "timeline";

    private Instance() {}

    /** Rows {@code user|number} with the event, and {@code user} with how many there are. */
    private static final class Timeline implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, String> store;

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            this.store = context.getStateStore(STORE);
        }

        @Override
        public void process(Record<String, String> event) {
            String known = store.get(event.key());
            int number = known == null ? 0 : Integer.parseInt(known);
            store.put(String.format("%s|%08d", event.key(), number), event.value());
            store.put(event.key(), String.valueOf(number + 1));
            context.forward(event.withValue(number + ":" + event.value()));
        }
    }

    /**
     * Runs until the input ends.
     *
     * @param arguments bootstrap servers, and the directory for state
     * @throws IOException if the input cannot be read
     */
    public static void main(String[] arguments) throws IOException {
        Topology topology = new Topology();
        topology.addSource("events", "events");
        topology.addProcessor("timeline", Timeline::new, "events");
        topology.addStateStore(
                Stores.keyValueStoreBuilder(KviltStores.keyValue(STORE), Serdes.String(), Serdes.String()), "timeline");
        topology.addSink("results", "results", "timeline");
        KafkaStreams streams = new KafkaStreams(topology, properties(arguments[0], arguments[1]));
        streams.setStateListener((now, before) -> tell("state " + now));
        streams.setGlobalStateRestoreListener(new Begins());
        streams.setStandbyUpdateListener(new Begins());
        streams.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            tell("rows " + scan(streams));
        }
        streams.close();
    }

    private static Properties properties(String servers, String directory) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "timelines");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 8000);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1000);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 10_000);
        properties.put("enable.transactional.statestores", true);
        properties.put("kvilt.memory.budget.bytes", 32 << 20);
        return properties;
    }

    /** How many events are in the partitions that are active here. */
    private static long scan(KafkaStreams streams) {
        long rows = 0;
        try (KeyValueIterator<String, String> all = streams.store(StoreQueryParameters.fromNameAndType(
                                STORE, QueryableStoreTypes.<String, String>keyValueStore()))
                        .all()) {
            while (all.hasNext()) {
                if (all.next().key.contains("|")) {
                    rows++;
                }
            }
        }
        return rows;
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Tells where stores begin. */
    private static final class Begins implements StateRestoreListener, StandbyUpdateListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long begin, long end) {
            tell("begin " + partition.partition() + " " + begin + " " + end);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long restored) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long restored) {
            tell("restored " + partition.partition() + " " + restored);
        }

        @Override
        public void onUpdateStart(TopicPartition partition, String store, long begin) {
            tell("begin " + partition.partition() + " " + begin + " standby");
        }

        @Override
        public void onBatchLoaded(
                TopicPartition partition, String store, TaskId task, long last, long size, long end) {}

        @Override
        public void onUpdateSuspended(
                TopicPartition partition, String store, long offset, long end, SuspendReason reason) {}
    }
}
