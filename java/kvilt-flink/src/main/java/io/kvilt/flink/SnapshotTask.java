package io.kvilt.flink;

import io.kvilt.KeyRange;
import io.kvilt.KviltIterator;
import io.kvilt.Snapshot;
import java.io.IOException;
import java.util.Arrays;
import org.apache.flink.runtime.state.AsyncSnapshotCallable;
import org.apache.flink.runtime.state.CheckpointStateOutputStream;
import org.apache.flink.runtime.state.CheckpointStreamFactory;
import org.apache.flink.runtime.state.CheckpointedStateScope;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeOffsets;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedStateCheckpointOutputStream;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.StreamStateHandle;
import org.apache.flink.runtime.state.memory.MemCheckpointStreamFactory;

/**
 * Writes the rows of a snapshot as raw keyed state, in the asynchronous phase of a checkpoint: one of Flink's threads
 * runs it while the operator goes on.
 *
 * <p>A cancelled one ends within a few rows, and Flink removes its file.
 */
final class SnapshotTask extends AsyncSnapshotCallable<SnapshotResult<KeyedStateHandle>> {
    /** How many rows are written between two looks whether it was cancelled, unless one has as many bytes. */
    private static final int ROWS_BETWEEN_LOOKS = 64;

    private static final int BYTES_BETWEEN_LOOKS = 64 << 10;

    /** Limits what a checkpoint that is kept in memory may have, in bytes; Flink refuses it at its end, when it is there. */
    private static final long IN_MEMORY_BYTES_MAX = 32 << 20;

    private final Snapshot snapshot;
    private final KeyGroupRange groups;
    private final CheckpointStreamFactory streams;
    private final Gauges gauges;

    /** Closes the snapshot when it is done or cancelled. */
    SnapshotTask(Snapshot snapshot, KeyGroupRange groups, CheckpointStreamFactory streams, Gauges gauges) {
        this.snapshot = snapshot;
        this.groups = groups;
        this.streams = streams;
        this.gauges = gauges;
    }

    @Override
    protected SnapshotResult<KeyedStateHandle> callInternal() throws Exception {
        try (KviltIterator rows = snapshot.scan(KeyRange.all(), Integer.MAX_VALUE)) {
            if (!rows.isValid()) {
                return SnapshotResult.empty();
            }
            CheckpointStateOutputStream out =
                    streams.createCheckpointStateOutputStream(CheckpointedStateScope.EXCLUSIVE);
            snapshotCloseableRegistry.registerCloseable(out);
            long[] offsets = new long[groups.getNumberOfKeyGroups()];
            Arrays.fill(offsets, KeyedStateCheckpointOutputStream.NO_OFFSET_SET);
            KeyGroupRangeOffsets places = new KeyGroupRangeOffsets(groups, offsets);
            write(rows, out, places);
            if (!snapshotCloseableRegistry.unregisterCloseable(out)) {
                throw new IOException("the checkpoint was cancelled");
            }
            StreamStateHandle handle = out.closeAndGetHandle();
            return SnapshotResult.of(new KeyGroupsStateHandle(places, handle));
        }
    }

    private void write(KviltIterator rows, CheckpointStateOutputStream out, KeyGroupRangeOffsets places)
            throws IOException {
        RawState.Writer writer = new RawState.Writer(out);
        long count = 0;
        while (rows.isValid()) {
            byte[] row = rows.key();
            int group = Prefixes.groupOf(row);
            places.setKeyGroupOffset(group, out.getPos());
            writer.begin(group);
            while (row != null && Prefixes.groupOf(row) == group) {
                byte[] value = rows.value();
                writer.add(row, value);
                count++;
                if (count % ROWS_BETWEEN_LOOKS == 0 || value.length >= BYTES_BETWEEN_LOOKS) {
                    ensureWanted(out);
                }
                rows.next();
                row = rows.isValid() ? rows.key() : null;
            }
            writer.end();
        }
        gauges.snapshotRows.set(count);
        gauges.snapshotBytes.set(out.getPos());
    }

    /** Memory may be written to for ever, closed or not. */
    private void ensureWanted(CheckpointStateOutputStream out) throws IOException {
        if (snapshotCloseableRegistry.isClosed()) {
            throw new IOException("the checkpoint was cancelled");
        }
        if (out instanceof MemCheckpointStreamFactory.MemoryCheckpointOutputStream && out.getPos() > IN_MEMORY_BYTES_MAX) {
            throw new IOException("the rows are too many for a checkpoint in memory: set execution.checkpointing.dir");
        }
    }

    @Override
    protected void cleanupProvidedResources() {
        snapshot.close();
    }
}
