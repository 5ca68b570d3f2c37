package io.kvilt.flink;

import io.kvilt.Engine;
import io.kvilt.Snapshot;
import java.io.File;
import java.io.IOException;
import java.util.Objects;
import java.util.concurrent.RunnableFuture;
import org.apache.flink.api.common.ExecutionConfig.ClosureCleanerLevel;
import org.apache.flink.api.common.TaskInfo;
import org.apache.flink.api.java.ClosureCleaner;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.runtime.checkpoint.CheckpointOptions;
import org.apache.flink.runtime.checkpoint.CheckpointType;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.CheckpointStreamFactory;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyGroupStatePartitionStreamProvider;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.taskmanager.TaskManagerRuntimeInfo;
import org.apache.flink.streaming.api.SimpleTimerService;
import org.apache.flink.streaming.api.TimeDomain;
import org.apache.flink.streaming.api.operators.AbstractUdfStreamOperator;
import org.apache.flink.streaming.api.operators.InternalTimer;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.OperatorSnapshotFutures;
import org.apache.flink.streaming.api.operators.TimestampedCollector;
import org.apache.flink.streaming.api.operators.Triggerable;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/**
 * A keyed operator that keeps, for each key of the stream, a sorted map of rows in a Kvilt store.
 *
 * <pre>{@code
 * events.keyBy(Event::user)
 *         .transform("timeline", TypeInformation.of(Visit.class), new KviltOperator<>((rows, event, out) -> {
 *             rows.put(key(event.time(), event.id()), event.bytes());
 *             byte[] from = key(Math.max(0, event.time() - HOUR));
 *             try (KeyedIterator hour = rows.scan(KeyRange.of(from, key(event.time() + 1)))) {
 *                 ...
 *             }
 *         }))
 *         .uid("timeline");
 * }</pre>
 *
 * <p>Each subtask has a store in a local directory, which is made for it and removed when it ends. What lasts are
 * Flink's checkpoints and savepoints: each has all rows, as raw keyed state, written by another thread while events are
 * processed. Flink gives them back after a failure, and divides them anew when the parallelism changes. Timers and
 * state of Flink's own may be used beside the rows, with any state backend but RocksDB with timers on the heap.
 *
 * <p>Settings go along with the job; one that makes no sense fails where it is set, or when the store is opened.
 *
 * @param <IN> type of the events
 * @param <OUT> type of the results
 */
public final class KviltOperator<IN, OUT> extends AbstractUdfStreamOperator<OUT, KviltFunction<IN, OUT>>
        implements OneInputStreamOperator<IN, OUT> {
    private static final long serialVersionUID = 1;

    private static final String TIMERS = "kvilt-timers";
    private static final long BUDGET_BYTES_MIN = 1 << 20;

    /** What Flink fills in where a local run, as that of an IDE, says nothing: no memory that anybody has planned. */
    private static final long BUDGET_BYTES_UNPLANNED = 1L << 40;

    /** If neither the operator nor the TaskManager says how much. */
    private static final long BUDGET_BYTES_DEFAULT = 64 << 20;

    /** Null for Flink's. */
    private String directory;

    /** Zero for what the TaskManager has for it. */
    private long memoryBudget;

    /** Null for Kvilt's default. */
    private Engine engine;

    private transient KeyGroupRange groups;
    private transient Store store;
    private transient Gauges gauges;
    private transient Prefixes prefixes;
    private transient KeyedRows rows;
    private transient TimestampedCollector<OUT> collector;

    /**
     * An operator that calls a function for each event.
     *
     * @param function the function, which is sent to the subtasks. An inner class that does not use its enclosing
     *     instance is separated from it, as Flink does with functions of its own.
     * @throws org.apache.flink.api.common.InvalidProgramException if the function cannot be serialized
     */
    public KviltOperator(KviltFunction<IN, OUT> function) {
        super(cleaned(function));
    }

    private static <F> F cleaned(F function) {
        ClosureCleaner.clean(function, ClosureCleanerLevel.RECURSIVE, true);
        // The cleaner leaves lambdas as they are, and does not look whether they can be serialized.
        ClosureCleaner.ensureSerializable(function);
        return function;
    }

    /**
     * Where each subtask makes its directory, on every machine. Default: the working directory of the TaskManager, as
     * Flink's RocksDB has it ({@code process.taskmanager.working-dir}, else {@code io.tmp.dirs}).
     *
     * <p>A process that is killed leaves its directories, whose names begin with {@code kvilt-}. Nobody removes them in
     * a directory that is set here.
     *
     * @param directory a directory of a local file system, which is made if it is not there
     * @return this
     */
    public KviltOperator<IN, OUT> setDirectory(String directory) {
        this.directory = Objects.requireNonNull(directory, "directory");
        return this;
    }

    /**
     * Memory for all Kvilt operators of a TaskManager together, outside of Java's heap. Operators that say the same
     * number share it. Default: what {@code taskmanager.memory.task.off-heap.size} says, and 64 MiB if that is less
     * than 1 MiB, or at least 1 TiB, which Flink fills in for a local run. Set it there as well: Flink sizes its
     * containers by that.
     *
     * @param bytes bytes, at least 1 MiB
     * @return this
     */
    public KviltOperator<IN, OUT> setMemoryBudget(long bytes) {
        if (bytes < BUDGET_BYTES_MIN) {
            throw new IllegalArgumentException("a memory budget has 1 MiB at least, and this is " + bytes + " bytes");
        }
        memoryBudget = bytes;
        return this;
    }

    /**
     * Which engine keeps the rows. Default: {@link Engine#EVEN}. It may be another one after a restore.
     *
     * @param engine the engine
     * @return this
     */
    public KviltOperator<IN, OUT> setEngine(Engine engine) {
        this.engine = Objects.requireNonNull(engine, "engine");
        return this;
    }

    @Override
    protected boolean isUsingCustomRawKeyedState() {
        return true;
    }

    @Override
    public void initializeState(StateInitializationContext context) throws Exception {
        super.initializeState(context);
        KeyedStateBackend<Object> backend = getKeyedStateBackend();
        if (backend == null) {
            throw new IllegalStateException("KviltOperator is for keyed streams: call keyBy before transform");
        }
        refuseTimersInRawState(backend);
        TaskInfo task = getRuntimeContext().getTaskInfo();
        int groupsOfAll = task.getMaxNumberOfParallelSubtasks();
        groups = KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex(
                groupsOfAll, task.getNumberOfParallelSubtasks(), task.getIndexOfThisSubtask());
        TaskManagerRuntimeInfo machine = getRuntimeContext().getTaskManagerRuntimeInfo();
        File parent = directory == null ? machine.getTmpWorkingDirectory() : new File(directory);
        store = new Store(
                parent,
                "kvilt-" + getOperatorID() + "-" + task.getIndexOfThisSubtask() + "-",
                memoryBudget(machine),
                engine);
        gauges = new Gauges(getMetricGroup(), store.db);
        prefixes = new Prefixes(groupsOfAll, backend.getKeySerializer());
        if (context.isRestored()) {
            restore(context.getRawKeyedStateInputs());
        }
    }

    /** Flink would want to write timers where our rows are, and fail at the first checkpoint. */
    private static void refuseTimersInRawState(KeyedStateBackend<?> backend) {
        if (backend instanceof AbstractKeyedStateBackend<?> ours
                && ours.requiresLegacySynchronousTimerSnapshots(CheckpointType.CHECKPOINT)) {
            throw new IllegalStateException("this state backend keeps timers on the heap and writes them to raw keyed"
                    + " state, where KviltOperator has its rows: set state.backend.rocksdb.timer-service.factory to"
                    + " ROCKSDB, or state.backend.type to hashmap");
        }
    }

    private long memoryBudget(TaskManagerRuntimeInfo machine) {
        if (memoryBudget != 0) {
            return memoryBudget;
        }
        long offHeap = machine.getConfiguration()
                .get(TaskManagerOptions.TASK_OFF_HEAP_MEMORY)
                .getBytes();
        boolean isPlanned = offHeap >= BUDGET_BYTES_MIN && offHeap < BUDGET_BYTES_UNPLANNED;
        return isPlanned ? offHeap : BUDGET_BYTES_DEFAULT;
    }

    private void restore(Iterable<KeyGroupStatePartitionStreamProvider> inputs) throws Exception {
        long begin = System.nanoTime();
        long restored = 0;
        for (KeyGroupStatePartitionStreamProvider input : inputs) {
            restored += RawState.read(
                    input.getStream(), input.getKeyGroupId(), prefixes::checkRestored, store.db::write);
        }
        LOG.info("{} restored {} rows in {} ms.", getOperatorName(), restored, (System.nanoTime() - begin) / 1_000_000);
    }

    @Override
    public void open() throws Exception {
        super.open();
        collector = new TimestampedCollector<>(output);
        rows = new KeyedRows(
                store.db,
                new SimpleTimerService(
                        getInternalTimerService(TIMERS, VoidNamespaceSerializer.INSTANCE, new Timers())));
    }

    @Override
    public void processElement(StreamRecord<IN> event) throws Exception {
        collector.setTimestamp(event);
        Object key = getCurrentKey();
        rows.begin(key, prefixes.of(key), event.hasTimestamp() ? Long.valueOf(event.getTimestamp()) : null);
        try {
            userFunction.process(rows, event.getValue(), collector);
        } finally {
            rows.end();
        }
    }

    /** Calls the function when a timer fires; Flink has set the key. */
    private final class Timers implements Triggerable<Object, VoidNamespace> {
        @Override
        public void onEventTime(InternalTimer<Object, VoidNamespace> timer) throws Exception {
            collector.setAbsoluteTimestamp(timer.getTimestamp());
            fire(timer, TimeDomain.EVENT_TIME);
        }

        @Override
        public void onProcessingTime(InternalTimer<Object, VoidNamespace> timer) throws Exception {
            collector.eraseTimestamp();
            fire(timer, TimeDomain.PROCESSING_TIME);
        }

        private void fire(InternalTimer<Object, VoidNamespace> timer, TimeDomain domain) throws Exception {
            rows.begin(timer.getKey(), prefixes.of(timer.getKey()), timer.getTimestamp());
            try {
                userFunction.onTimer(rows, timer.getTimestamp(), domain, collector);
            } finally {
                rows.end();
            }
        }
    }

    /**
     * Takes a snapshot of the rows, which costs the same however many there are; one of Flink's threads writes them out
     * when this has returned.
     */
    @Override
    public OperatorSnapshotFutures snapshotState(
            long checkpointId, long timestamp, CheckpointOptions options, CheckpointStreamFactory streams)
            throws Exception {
        OperatorSnapshotFutures futures = super.snapshotState(checkpointId, timestamp, options, streams);
        try {
            // Flink's own has nothing to write, and would stay registered with the task.
            futures.getKeyedStateRawFuture().cancel(true);
            futures.setKeyedStateRawFuture(rowsOut(streams));
            return futures;
        } catch (Exception e) {
            futures.cancel();
            throw e;
        }
    }

    private RunnableFuture<SnapshotResult<KeyedStateHandle>> rowsOut(CheckpointStreamFactory streams)
            throws IOException {
        Snapshot snapshot = store.db.getSnapshot();
        try {
            return new SnapshotTask(snapshot, groups, streams, gauges)
                    .toAsyncSnapshotFutureTask(getContainingTask().getCancelables());
        } catch (IOException | RuntimeException e) {
            snapshot.close();
            throw e;
        }
    }

    @Override
    public void close() throws Exception {
        try {
            super.close();
        } finally {
            if (store != null) {
                store.close();
            }
        }
    }
}
