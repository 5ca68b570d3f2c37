package io.kvilt.kafka.cluster;

import io.kvilt.KviltException;
import io.kvilt.kafka.KviltDslStoreSuppliers;
import io.kvilt.kafka.KviltStores;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.errors.TaskMigratedException;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;
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
 * An application's process: numbers the events of each user, keeps them in order, tells of each once, and counts those
 * of each minute.
 *
 * <p>Writes lines: {@code state RUNNING}, {@code begin store partition offset end} where a store begins to be restored,
 * {@code begin store partition offset standby} where it begins to follow another, {@code followed store partition
 * offset} for what it took over, {@code full} where a thread ended as the disk is full, and {@code rows n} for the line
 * {@code scan} of its input, -1 behind {@code damaged} if the query found damage, -2 if Kafka answers no query while it
 * moves tasks. For the line {@code halt} it writes {@code halting}. It then halts in the middle of a transaction, when it
 * has written the rows of {@link #EVENTS_UNTIL_HALT} more events: it closes nothing, and ends with the code {@link
 * #HALTED}. Ends when its input does.
 */
public final class Instance {
    private static final String STORE = "timeline";

    static final Duration WINDOW = Duration.ofMinutes(1);

    /** Enough that events before the last one were counted, too. */
    private static final int EVENTS_UNTIL_HALT = 200;

    /** The code with which a process ends that halts. */
    static final int HALTED = 42;

    /** Until it halts; zero while it is not to. */
    private static final AtomicInteger EVENTS_LEFT = new AtomicInteger();

    /** What keeps the rows. */
    enum Keeper {
        ROCKSDB,
        KVILT,
        /** Kvilt, and nothing waits for a commit: each write is an early one. */
        KVILT_EARLY
    }

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
            if (EVENTS_LEFT.get() > 0 && EVENTS_LEFT.decrementAndGet() == 0) {
                Runtime.getRuntime().halt(HALTED);
            }
        }
    }

    /**
     * Runs until the input ends.
     *
     * @param arguments bootstrap servers, the directory for state, copies of each topic, and which {@link Keeper}
     * @throws IOException if the input cannot be read
     */
    public static void main(String[] arguments) throws IOException {
        Keeper keeper = Keeper.valueOf(arguments[3]);
        Properties properties = properties(arguments[0], arguments[1], Integer.parseInt(arguments[2]), keeper);
        KafkaStreams streams = new KafkaStreams(topology(keeper, properties), properties);
        streams.setStateListener((now, before) -> tell("state " + now));
        streams.setUncaughtExceptionHandler(Instance::failed);
        streams.setGlobalStateRestoreListener(new Begins());
        streams.setStandbyUpdateListener(new Begins());
        streams.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("halt")) {
                EVENTS_LEFT.set(EVENTS_UNTIL_HALT);
                tell("halting");
            } else {
                tell("rows " + scan(streams));
            }
        }
        streams.close();
    }

    private static Topology topology(Keeper keeper, Properties properties) {
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(properties)));
        builder.addStateStore(Stores.keyValueStoreBuilder(
                switch (keeper) {
                    case ROCKSDB -> Stores.persistentKeyValueStore(STORE);
                    case KVILT, KVILT_EARLY -> KviltStores.keyValue(STORE);
                },
                Serdes.String(),
                Serdes.String()));
        KStream<String, String> events = builder.stream("events");
        events.process(Timeline::new, STORE).to("results");
        events.groupByKey()
                .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, WINDOW))
                .count(Materialized.as("counts"))
                .toStream()
                .map((window, count) -> KeyValue.pair(
                        window.key() + "@" + window.window().start() / WINDOW.toMillis(), String.valueOf(count)))
                .to("counts");
        return builder.build(properties);
    }

    private static Properties properties(String servers, String directory, int replicas, Keeper keeper) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "timelines");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, replicas);
        // Every count comes out.
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 8000);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1000);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 10_000);
        if (keeper == Keeper.KVILT_EARLY) {
            properties.put("kvilt.uncommitted.bytes.max", 0);
        }
        if (keeper != Keeper.ROCKSDB) {
            properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, KviltDslStoreSuppliers.class);
            properties.put("enable.transactional.statestores", true);
            properties.put("kvilt.memory.budget.bytes", 32 << 20);
        }
        return properties;
    }

    /** A full disk may get room; anything else ends the application. */
    private static StreamThreadExceptionResponse failed(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof KviltException kvilt && kvilt.kind() == KviltException.Kind.NO_SPACE) {
                tell("full " + failure.getMessage() + " " + failure.getCause());
                return StreamThreadExceptionResponse.REPLACE_THREAD;
            }
        }
        failure.printStackTrace();
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    }

    /** How many events are in the partitions that are active here. */
    private static long scan(KafkaStreams streams) {
        if (streams.metadataForLocalThreads().stream().allMatch(thread -> thread.activeTasks().isEmpty())) {
            // All are active elsewhere, and Kafka then answers no query of the store.
            return 0;
        }
        long rows = 0;
        try (KeyValueIterator<String, String> all = streams.store(StoreQueryParameters.fromNameAndType(
                                STORE, QueryableStoreTypes.<String, String>keyValueStore()))
                        .all()) {
            while (all.hasNext()) {
                if (all.next().key.contains("|")) {
                    rows++;
                }
            }
        } catch (TaskMigratedException e) {
            tell("damaged " + e.getCause().getMessage());
            return -1;
        } catch (InvalidStateStoreException e) {
            return -2;
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
            tell("begin " + store + " " + partition.partition() + " " + begin + " " + end);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long restored) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long restored) {
            tell("restored " + store + " " + partition.partition() + " " + restored);
        }

        @Override
        public void onUpdateStart(TopicPartition partition, String store, long begin) {
            tell("begin " + store + " " + partition.partition() + " " + begin + " standby");
        }

        @Override
        public void onBatchLoaded(
                TopicPartition partition, String store, TaskId task, long last, long size, long end) {
            tell("followed " + store + " " + partition.partition() + " " + last);
        }

        @Override
        public void onUpdateSuspended(
                TopicPartition partition, String store, long offset, long end, SuspendReason reason) {}
    }
}
