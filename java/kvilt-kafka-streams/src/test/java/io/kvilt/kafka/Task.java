package io.kvilt.kafka;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.test.InternalMockProcessorContext;

/** A task of Kafka's with a directory, in which stores are opened one after another. */
final class Task {
    final Path directory;
    final Properties properties = new Properties();
    private final Map<String, String> changelogs = new HashMap<>();
    private InternalMockProcessorContext<?, ?> context;
    private boolean isGlobal;

    Task(Path directory, boolean isExactlyOnce) {
        this.directory = directory;
        directory.toFile().mkdirs();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "test");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:1");
        properties.put(KviltConfig.MEMORY_BUDGET_BYTES_CONFIG, String.valueOf(64 << 20));
        if (isExactlyOnce) {
            properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
            properties.put("enable.transactional.statestores", "true");
            properties.put(KviltConfig.HAS_TRANSACTIONS_CONFIG, "true");
        }
    }

    Task with(String name, Object value) {
        properties.put(name, value);
        return this;
    }

    InternalMockProcessorContext<?, ?> context() {
        if (context == null) {
            renew();
        }
        return context;
    }

    /** Makes it the one that global tables have. */
    Task global() {
        isGlobal = true;
        return this;
    }

    /** Gives stores of this name a changelog, so Kafka can restore them. */
    Task withChangelog(String store) {
        changelogs.put(store, "test-" + store + "-changelog");
        return this;
    }

    /** What a task is after a restart: the directory stays. */
    void renew() {
        context = new InternalMockProcessorContext<>(
                directory.toFile(),
                Serdes.ByteArray(),
                Serdes.ByteArray(),
                new StreamsConfig(properties)) {
            @Override
            public TaskId taskId() {
                return isGlobal ? Checkpoints.GLOBAL : super.taskId();
            }
        };
        changelogs.forEach(context::addChangelogForStore);
    }

    <S extends StateStore> S open(S store) {
        StateStoreContext known = context();
        store.init(known, store);
        return store;
    }

    static Bytes key(String text) {
        return Bytes.wrap(bytes(text));
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
