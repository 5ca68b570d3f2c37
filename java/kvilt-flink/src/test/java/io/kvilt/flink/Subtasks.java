package io.kvilt.flink;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.AbstractStreamOperatorTestHarness;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;

/** All subtasks of a keyed operator, each in Flink's harness, which checkpoint and change their number. */
final class Subtasks implements AutoCloseable {
    static final int GROUPS = 20;

    private final Path directory;
    private final KviltFunction<Event, String> function;
    private List<KeyedOneInputStreamOperatorTestHarness<String, Event, String>> tasks;
    private long checkpoint;

    Subtasks(Path directory, int count) throws Exception {
        this(directory, count, Event.OBEY);
    }

    Subtasks(Path directory, int count, KviltFunction<Event, String> function) throws Exception {
        this.directory = directory;
        this.function = function;
        open(count, 0, null);
    }

    KviltOperator<Event, String> operator() {
        return new KviltOperator<>(function).setDirectory(directory.toString()).setMemoryBudget(16 << 20);
    }

    private void open(int count, int countBefore, OperatorSubtaskState state) throws Exception {
        tasks = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            var task = new KeyedOneInputStreamOperatorTestHarness<>(
                    operator(), Event::user, Types.STRING, GROUPS, count, i);
            tasks.add(task);
            task.setup();
            if (state != null) {
                task.initializeState(AbstractStreamOperatorTestHarness.repartitionOperatorState(
                        state, GROUPS, countBefore, count, i));
            }
            task.open();
        }
    }

    KeyedOneInputStreamOperatorTestHarness<String, Event, String> task(int index) {
        return tasks.get(index);
    }

    KeyedOneInputStreamOperatorTestHarness<String, Event, String> taskOf(String user) {
        return tasks.get(KeyGroupRangeAssignment.assignKeyToParallelOperator(user, GROUPS, tasks.size()));
    }

    void process(String user, Event.Act act) throws Exception {
        taskOf(user).processElement(new StreamRecord<>(Event.of(user, act), 17));
    }

    void watermark(long time) throws Exception {
        for (var task : tasks) {
            task.processWatermark(time);
        }
    }

    /** What all subtasks wrote, as one. */
    OperatorSubtaskState checkpoint() throws Exception {
        checkpoint++;
        OperatorSubtaskState[] states = new OperatorSubtaskState[tasks.size()];
        for (int i = 0; i < states.length; i++) {
            states[i] = tasks.get(i).snapshot(checkpoint, checkpoint);
        }
        return AbstractStreamOperatorTestHarness.repackageState(states);
    }

    /** Checkpoints, closes all, and goes on with so many. */
    void rescale(int count) throws Exception {
        int before = tasks.size();
        OperatorSubtaskState state = checkpoint();
        close();
        open(count, before, state);
    }

    /** As {@link #rescale}, from an older checkpoint of as many subtasks. */
    void restore(OperatorSubtaskState state) throws Exception {
        int count = tasks.size();
        close();
        open(count, count, state);
    }

    List<String> output() {
        List<String> output = new ArrayList<>();
        for (var task : tasks) {
            output.addAll(task.extractOutputValues());
            task.getOutput().clear();
        }
        return output;
    }

    @Override
    public void close() throws Exception {
        for (var task : tasks) {
            task.close();
        }
    }
}
