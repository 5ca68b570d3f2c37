package io.kvilt.kafka;

import java.io.File;
import java.io.IOException;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.state.internals.OffsetCheckpoint;

/**
 * The file in which Kafka before 4.3 says how far each store of a task has come.
 *
 * <p>It knows nothing of what a store is made of. If it speaks of a store that is not there, because another kind of
 * store kept its rows before, or because they were damaged and removed, Kafka would take an empty store for a full one.
 */
final class Checkpoints {
    private static final String FILE = ".checkpoint";

    /**
     * Whether Kafka reads the file of global tables before it opens their stores, so that a change at the open comes
     * too late for it: so does Kafka before 4.3, where stores are not asked for their offsets.
     */
    static final boolean ARE_READ_BEFORE_GLOBAL_STORES =
            Arrays.stream(StateStore.class.getMethods()).noneMatch(method -> method.getName().equals("committedOffset"));

    /** The task of global tables. */
    static final TaskId GLOBAL = new TaskId(-1, -1);

    private Checkpoints() {}

    /**
     * Makes Kafka restore from the beginning what comes from this changelog. Kafka reads the file of a task behind all
     * opens; where it read that of global tables before, this fails, and the next start finds the file as it is then.
     *
     * @param failure how the text of the failure begins
     */
    static void forget(StateStoreContext context, String changelog, String failure) {
        File file = new File(context.stateDir(), FILE);
        if (!file.exists()) {
            return;
        }
        OffsetCheckpoint checkpoint = new OffsetCheckpoint(file);
        boolean isThere;
        try {
            Map<TopicPartition, Long> offsets = checkpoint.read();
            isThere = offsets.keySet().removeIf(partition -> partition.topic().equals(changelog));
            if (isThere) {
                checkpoint.write(offsets);
            }
        } catch (IOException e) {
            throw new ProcessorStateException(failure + ": cannot take " + changelog + " out of " + file, e);
        }
        if (isThere && ARE_READ_BEFORE_GLOBAL_STORES && context.taskId().equals(GLOBAL)) {
            throw new ProcessorStateException(failure + ": it is new, and Kafka has already read from " + file
                    + " how far the one before it had come. That line is removed now: start the application again, and"
                    + " the store is restored from all of " + changelog);
        }
    }
}
