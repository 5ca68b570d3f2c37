package io.kvilt.kafka;

import java.io.File;
import java.io.IOException;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.state.internals.OffsetCheckpoint;

/**
 * The file in which Kafka before 4.3 says how far each store of a task has come.
 *
 * <p>It knows nothing of what a store is made of. If it speaks of a store that is not there, because another kind of
 * store kept its rows before, or because they were damaged and removed, Kafka would take an empty store for a full one.
 */
final class Checkpoints {
    private static final String FILE = ".checkpoint";

    private Checkpoints() {}

    /** Makes Kafka restore from the begin what comes from this changelog. Kafka reads the file behind all opens. */
    static void forget(File stateDirectory, String changelog) {
        File file = new File(stateDirectory, FILE);
        if (!file.exists()) {
            return;
        }
        OffsetCheckpoint checkpoint = new OffsetCheckpoint(file);
        try {
            Map<TopicPartition, Long> offsets = checkpoint.read();
            if (offsets.keySet().removeIf(partition -> partition.topic().equals(changelog))) {
                checkpoint.write(offsets);
            }
        } catch (IOException e) {
            throw new ProcessorStateException("cannot take " + changelog + " out of " + file, e);
        }
    }
}
