package io.kvilt.kafka;

import io.kvilt.Durability;
import io.kvilt.Env;
import io.kvilt.KeyRange;
import io.kvilt.Kvilt;
import io.kvilt.KviltException;
import io.kvilt.KviltIterator;
import io.kvilt.Options;
import io.kvilt.WriteBatch;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.errors.TaskMigratedException;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The rows of a state store, and what must change together with them: offsets, position and stream time.
 *
 * <p>One thread writes, Kafka's; any thread reads. The lock is the position's monitor, as Kafka's queries hold it too;
 * {@link #get} takes none.
 *
 * <p>A transactional task's writes wait in {@link #uncommitted} until the task commits. Then they go to the engine in one
 * batch with the offsets, so what a crash leaves is a commit, and the task replays from there. If they need more room
 * than they may have, they are written before, with a mark in the same batch; the next commit takes it away. All other
 * writes go through, and mark the store at the first one behind a commit.
 *
 * <p>A marked store has rows of a transaction that may not have come to its end. An exactly-once task must begin anew:
 * where Kafka would restore over the rows, the store is removed by its open; else it has no offset, and Kafka removes it.
 */
final class Storage implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Storage.class);

    /** Below the state directory of a task, as RocksDB's are in {@code rocksdb}. */
    static final String DIRECTORY = "kvilt";

    /** What a commit writes beside rows, about. */
    private static final int COMMIT_BYTES = 1 << 10;

    private static final int BATCH_OPERATIONS_MAX = 4 << 20;
    private static final long BATCH_BYTES_MAX = 256 << 20;

    /**
     * Writes that need not be one step are cut where they exceed this: others wait while a batch is written, and the
     * batch takes as much of Java's heap.
     */
    private static final int PIECE_OPERATIONS_MAX = 32 << 10;

    /** Limits of the engine, in bytes. */
    private static final int KEY_BYTES_MAX = 64 << 10;

    private static final int VALUE_BYTES_MAX = 64 << 20;

    private static final long PIECE_BYTES_MAX = 16 << 20;

    /** Rows from a key, included, to another, excluded; null for no end. */
    record Range(byte[] from, byte[] to) {}

    /** The mark in the ledger, and what it says. */
    private enum Mark {
        /** There is none: all rows are committed, or wait. */
        NONE,
        /** Rows were written that no commit has followed. */
        WRITTEN,
        /** A commit has followed all rows. The mark stays until a close or a restore: see {@link #areCommitsBelieved}. */
        COMMITTED,
        /** Offsets do not say what the rows are: a transaction did not come to its end. */
        UNCERTAIN
    }

    private final String name;
    private final StateStoreContext context;
    private final KviltConfig config;
    private final Path path;
    private final DamageNote note;
    private final Position position = Position.emptyPosition();
    private final Uncommitted uncommitted = new Uncommitted();
    private final Gauges gauges;

    /** From which Kafka can restore it; null for none. */
    private final String changelog;

    private final boolean isGlobal;

    /** Stays when it is closed: calls that come later say so. */
    private Kvilt db;

    private Ledger ledger;
    private Mark mark = Mark.NONE;

    /** Whether Kafka keeps offsets in a file, so that those that a newer one left here will be wrong. */
    private boolean hasStaleOffsets = Checkpoints.ARE_READ_BEFORE_GLOBAL_STORES;

    /** Whether the task has written, or tried to, since it was opened or restored: it runs. */
    private boolean isWritten;

    /** Whether it was used since its open. */
    private boolean isTouched;

    private volatile long streamTime;

    /** Rows before it are to be deleted by the next commit; null for none. */
    private byte[] expired;

    /** Whether there is something to commit, but for offsets. */
    private boolean isChanged;

    /** Of the last commit, and whether that was synced. */
    private Map<TopicPartition, Long> lastOffsets;
    private boolean lastIsSynced;

    private volatile boolean isOpen;

    /** What a read has found damaged, or null. A query's thread tells Kafka nothing: the task's own must be told. */
    private volatile KviltException damage;

    private Storage(String name, String kind, String scope, StateStoreContext context) {
        this.name = name;
        this.context = context;
        this.config = new KviltConfig(context.appConfigs());
        this.path = context.stateDir().toPath().resolve(DIRECTORY).resolve(name);
        this.note = new DamageNote(context.stateDir(), name);
        this.changelog = context instanceof InternalProcessorContext<?, ?> internal ? internal.changelogFor(name) : null;
        this.isGlobal = context.taskId().equals(Checkpoints.GLOBAL);
        Env env = Budgets.acquire(config.memoryBudget);
        try {
            open(kind, env);
            gauges = new Gauges(context.metrics(), context.taskId().toString(), scope, name, db, uncommitted::bytes);
            isOpen = true;
        } catch (RuntimeException | Error e) {
            close();
            if (e instanceof KviltException) {
                throw new ProcessorStateException(told("open") + ": " + e.getMessage(), e);
            }
            throw e;
        } finally {
            if (!isOpen) {
                Budgets.release(config.memoryBudget);
            }
        }
    }

    /**
     * Opens the store of a task. A store that is damaged, or is of another kind, is made anew if Kafka can restore it.
     *
     * @param kind what the rows are: whoever names the same kind reads them alike
     * @param scope what Kafka's metrics call such a store
     */
    static Storage open(String name, String kind, String scope, StateStoreContext context) {
        return new Storage(name, kind, scope, context);
    }

    private void open(String kind, Env env) {
        String wrong = null;
        RuntimeException cause = null;
        try {
            if (note.exists()) {
                wrong = "damage was found before, which the file " + note + " notes";
            } else {
                wrong = openAs(kind, env);
            }
        } catch (KviltException e) {
            if (e.kind() != KviltException.Kind.CORRUPTED) {
                throw e;
            }
            wrong = e.getMessage();
            cause = e;
        }
        if (wrong == null) {
            return;
        }
        shut();
        if (changelog == null) {
            throw new ProcessorStateException(
                    told("open") + ": " + wrong + "; it has no changelog to restore it from. `kvilt repair` may get rows out of it", cause);
        }
        LOG.warn("The store {} in {} is removed and restored from {}: {}", name, path, changelog, wrong);
        try {
            // The note goes last: if the process dies before, the next open does all of this again.
            note.write(wrong);
            forget();
            Utils.delete(path.toFile());
            openAs(kind, env);
            note.remove();
        } catch (IOException e) {
            throw new ProcessorStateException(told("remove"), e);
        }
    }

    /**
     * Makes Kafka restore the store from the beginning. This comes before anything that makes the store look like one that
     * was there before, so that no crash leaves an empty store whose old offset is believed.
     */
    private void forget() {
        if (changelog != null) {
            Checkpoints.forget(context, changelog, told("open"));
        }
    }

    /** Opens it and reads what is kept beside the rows; says what is wrong if the rows mean something else. */
    private String openAs(String kind, Env env) {
        if (!Files.exists(path)) {
            forget();
        }
        try {
            Files.createDirectories(path.getParent());
        } catch (IOException e) {
            throw new ProcessorStateException(told("make a directory for"), e);
        }
        Options options = new Options()
                .setEnv(env)
                .setDurability(Durability.async())
                .setBatchOperationsMax(BATCH_OPERATIONS_MAX)
                .setBatchBytesMax(BATCH_BYTES_MAX);
        if (config.engine != null) {
            options.setEngine(config.engine);
        }
        db = Kvilt.open(options, path);
        ledger = new Ledger(db);
        String found = ledger.kind();
        if (found == null) {
            // An open that did not come to its end made the directory.
            forget();
            ledger.setKind(kind);
        } else if (!found.equals(kind) && changelog == null && isEmpty()) {
            // With a changelog, its offset and time would keep rows from being restored that the changelog has.
            ledger.setKind(kind);
        } else if (!found.equals(kind)) {
            return "it is a store of kind `" + found + "`, not `" + kind + "`";
        }
        streamTime = ledger.time();
        mark = !ledger.isMarked() ? Mark.NONE : config.isExactlyOnce ? Mark.UNCERTAIN : Mark.WRITTEN;
        if (mark == Mark.UNCERTAIN && changelog != null && isRestoredOver()) {
            return "it has writes of a transaction that did not come to its end";
        }
        ledger.mergeInto(position);
        return null;
    }

    /**
     * Whether Kafka restores a store that has no offset over the rows that it has: it believes that a transactional one
     * has commits only, and looks at no global one. Before 4.3 it has read how far a global one came.
     */
    private boolean isRestoredOver() {
        return config.isTransactional || isGlobal && !Checkpoints.ARE_READ_BEFORE_GLOBAL_STORES;
    }

    private boolean isEmpty() {
        try (KviltIterator rows = db.scan(KeyRange.all(), 1)) {
            return !rows.isValid();
        }
    }

    Position position() {
        return position;
    }

    boolean isOpen() {
        return isOpen;
    }

    /** The greatest time that the store has seen, of all commits and since. */
    long streamTime() {
        return streamTime;
    }

    void observe(long time) {
        if (time > streamTime) {
            streamTime = time;
            isChanged = true;
        }
    }

    byte[] get(byte[] key) {
        check();
        try {
            if (config.isTransactional) {
                byte[] waits = uncommitted.get(key);
                if (waits != null) {
                    return Uncommitted.isDeleted(waits) ? null : waits.clone();
                }
            }
            // What was committed meanwhile is in the engine: it leaves the ones that wait behind that.
            return db.get(key);
        } catch (RuntimeException e) {
            throw failure("read", e);
        }
    }

    /** Gives the key a value, or takes it away for null, and notes which record that came from. */
    void put(byte[] key, byte[] value) {
        beginWrite();
        synchronized (position) {
            try {
                noteWrite();
                write(key, value);
            } catch (RuntimeException e) {
                throw failure("write to", e);
            }
            StoreQueryUtils.updatePosition(position, context);
        }
    }

    /** As {@link #put} for each, in one step. */
    void putAll(Collection<Map.Entry<byte[], byte[]>> rows) {
        beginWrite();
        synchronized (position) {
            noteWrite();
            writeAll(rows, isWaiting());
            StoreQueryUtils.updatePosition(position, context);
        }
    }

    private void beginWrite() {
        isWritten = true;
        checkWhole();
    }

    private void noteWrite() {
        isTouched = true;
        isChanged = true;
        if (mark == Mark.COMMITTED) {
            mark = Mark.WRITTEN;
        }
    }

    /** Rows of a changelog: they are committed, and need no mark. */
    void restore(Collection<Map.Entry<byte[], byte[]>> rows) {
        check();
        synchronized (position) {
            isTouched = true;
            isWritten = false;
            if (!uncommitted.isEmpty()) {
                writeAll(rows, true);
                return;
            }
            try {
                isChanged = true;
                forgetStaleOffsets();
                // It may have become a standby, which a task whose transaction was aborted does not.
                unmarkCommitted();
                writePieces(rows, false);
            } catch (RuntimeException e) {
                throw failure("write to", e);
            }
        }
    }

    private void writeAll(Collection<Map.Entry<byte[], byte[]>> rows, boolean isWaiting) {
        try {
            isChanged = true;
            if (isWaiting) {
                rows.forEach(row -> ensureFits(row.getKey(), row.getValue()));
                rows.forEach(row -> write(row.getKey(), row.getValue()));
                return;
            }
            try (WriteBatch batch = new WriteBatch()) {
                addMark(batch);
                rows.forEach(row -> add(batch, row.getKey(), row.getValue()));
                writeBatch(batch, true);
            }
        } catch (RuntimeException e) {
            throw failure("write to", e);
        }
    }

    /** Writes rows in as many batches as they need; the first one has the mark, if wanted. */
    private void writePieces(Collection<Map.Entry<byte[], byte[]>> rows, boolean isMarking) {
        try (WriteBatch batch = new WriteBatch()) {
            if (isMarking) {
                addMark(batch);
            }
            for (Map.Entry<byte[], byte[]> row : rows) {
                add(batch, row.getKey(), Uncommitted.isDeleted(row.getValue()) ? null : row.getValue());
                if (batch.count() >= PIECE_OPERATIONS_MAX || batch.getDataSize() >= PIECE_BYTES_MAX) {
                    writeBatch(batch, isMarking);
                    batch.clear();
                }
            }
            writeBatch(batch, isMarking);
        }
    }

    /** Whether writes wait for the commit. They do behind others that wait, which a write early may have left. */
    private boolean isWaiting() {
        return config.isTransactional && (mark == Mark.NONE || !uncommitted.isEmpty());
    }

    private void write(byte[] key, byte[] value) {
        if (isWaiting()) {
            ensureFits(key, value);
            uncommitted.put(key, value);
            if (uncommitted.bytes() > config.uncommittedBytesMax) {
                spill();
            }
            return;
        }
        if (mark == Mark.NONE) {
            ledger.mark();
            mark = Mark.WRITTEN;
        }
        if (value == null) {
            db.delete(key);
        } else {
            db.put(key, value);
        }
    }

    /** What the engine would refuse must not wait: Kafka would have committed the record when that is noticed. */
    private void ensureFits(byte[] key, byte[] value) {
        ensureFits("key", key.length, KEY_BYTES_MAX);
        ensureFits("value", value == null ? 0 : value.length, VALUE_BYTES_MAX);
    }

    private void ensureFits(String what, int bytes, int most) {
        if (bytes > most) {
            throw new ProcessorStateException(
                    told("write to") + ": the " + what + " has " + bytes + " bytes; a " + what + " may have up to " + most);
        }
    }

    /**
     * Writes what waits, though nobody knows yet whether the task will commit. Reads see no half of it, as it waits
     * until all is written.
     */
    private void spill() {
        writePieces(uncommitted.rows(), true);
        uncommitted.clear();
    }

    private void addMark(WriteBatch batch) {
        if (mark == Mark.NONE) {
            ledger.addMark(batch);
        }
    }

    /**
     * Writes a batch, which has the mark if {@code isMarking}. The store is marked once that is written, and not before:
     * if it fails, the next write tries again.
     */
    private void writeBatch(WriteBatch batch, boolean isMarking) {
        db.write(batch);
        if (isMarking && mark == Mark.NONE) {
            mark = Mark.WRITTEN;
        }
    }

    private static void add(WriteBatch batch, byte[] key, byte[] value) {
        if (value == null) {
            batch.delete(key);
        } else {
            batch.put(key, value);
        }
    }

    /** From now on there is nothing before this key. The next commit deletes it. */
    void expire(byte[] before) {
        synchronized (position) {
            isChanged = true;
            expired = before;
            uncommitted.forget(before);
        }
    }

    /**
     * Makes what was written since the last commit part of the store, with offsets of changelogs in the same step.
     *
     * <p>Kafka commits in three more cases. While it restores a store, or follows another, a thread of its own commits,
     * which an exception ends; so damage is told by the first write of the task and not here. When it opened the store
     * it brings offsets that an older Kafka has left in its file; they are no news where the store has its own. When a
     * transaction was aborted it commits without offsets, and removes the store then; what waits must not become part
     * of it.
     *
     * @param offsets by partition; a null one is forgotten, and no partitions at all forget all of them; null changes
     *     none
     * @param isSynced whether it must survive a crash of the machine when this returns
     */
    void commit(Map<TopicPartition, Long> offsets, boolean isSynced) {
        check();
        try {
            commitWhole(offsets, isSynced);
        } catch (TaskMigratedException e) {
            if (isWritten) {
                throw e;
            }
        }
    }

    private void commitWhole(Map<TopicPartition, Long> offsets, boolean isSynced) {
        checkWhole();
        long begin = System.nanoTime();
        boolean mustSync = isSynced || config.isSynced;
        synchronized (position) {
            if (config.isTransactional && changelog != null && !isGlobal && offsets != null && offsets.isEmpty()) {
                abandon();
                return;
            }
            boolean isFirst = !isTouched;
            isTouched = true;
            Map<TopicPartition, Long> given = isFirst ? news(offsets) : offsets;
            boolean isSame = given == null || given.equals(lastOffsets);
            if (isSame && !isChanged && (lastIsSynced || !mustSync)) {
                return;
            }
            // Room for all of it, as a batch that grows is copied. It takes less than what is counted for the rows.
            int room = (int) Math.min(uncommitted.bytes() + COMMIT_BYTES, BATCH_BYTES_MAX);
            try (WriteBatch batch = new WriteBatch(room)) {
                for (Map.Entry<byte[], byte[]> row : uncommitted.rows()) {
                    add(batch, row.getKey(), Uncommitted.isDeleted(row.getValue()) ? null : row.getValue());
                }
                if (offsets == null) {
                    forgetStaleOffsets();
                }
                ledger.add(batch, given);
                ledger.add(batch, position, streamTime);
                Mark next = isFirst ? mark : markBehindCommit();
                if (mark != Mark.NONE && next == Mark.NONE) {
                    ledger.removeMark(batch);
                }
                db.write(batch);
                mark = next;
                uncommitted.clear();
                if (expired != null) {
                    db.deleteRange(KeyRange.lessThan(expired));
                    expired = null;
                }
                if (mustSync) {
                    db.sync();
                }
                isChanged = false;
                lastIsSynced = mustSync;
                // One that names partitions may leave others as they are.
                lastOffsets = given == null ? lastOffsets : new HashMap<>(given);
            } catch (RuntimeException e) {
                throw failure("commit to", e);
            }
        }
        gauges.committed(begin);
    }

    /** Of offsets that come behind the open, those that the store has no own ones for; null for none. */
    private Map<TopicPartition, Long> news(Map<TopicPartition, Long> offsets) {
        if (offsets == null || offsets.isEmpty()) {
            return offsets;
        }
        Map<TopicPartition, Long> news = new HashMap<>(offsets);
        news.entrySet().removeIf(offset -> offset.getValue() != null && ledger.offset(offset.getKey()) != null);
        return news.isEmpty() ? null : news;
    }

    private Mark markBehindCommit() {
        if (areCommitsBelieved()) {
            return Mark.NONE;
        }
        return mark == Mark.WRITTEN ? Mark.COMMITTED : mark;
    }

    /**
     * Whether a commit takes the mark away, and not the close. Kafka 4.3 commits a transaction that it aborted, too, and
     * then closes and removes the store. So what remains is the time from the close to the end of that removal, as with
     * RocksDB.
     */
    private boolean areCommitsBelieved() {
        return !config.isExactlyOnce || config.isTransactional || isGlobal;
    }

    private void forgetStaleOffsets() {
        if (hasStaleOffsets) {
            ledger.forgetOffsets();
            hasStaleOffsets = false;
        }
    }

    private void unmarkCommitted() {
        if (mark == Mark.COMMITTED) {
            ledger.unmark();
            mark = Mark.NONE;
        }
    }

    /** Nothing of the transaction is to be found by the next open, should Kafka not come to remove the store. */
    private void abandon() {
        uncommitted.clear();
        try (WriteBatch batch = new WriteBatch()) {
            ledger.addMark(batch);
            ledger.add(batch, Map.of());
            db.write(batch);
            mark = Mark.UNCERTAIN;
            isChanged = true;
        } catch (RuntimeException e) {
            throw failure("commit to", e);
        }
    }

    /** The offset of the last commit, or null if there is none that can be relied on. */
    Long committedOffset(TopicPartition partition) {
        check();
        isTouched = true;
        try {
            return mark == Mark.UNCERTAIN ? null : ledger.offset(partition);
        } catch (RuntimeException e) {
            throw failure("read", e);
        }
    }

    /** The rows of ranges, one range behind the other, all as of now. They are to be closed. */
    Rows scan(List<Range> ranges, boolean isBackward) {
        check();
        List<Rows.Part> parts = new ArrayList<>(ranges.size());
        synchronized (position) {
            try {
                for (Range range : ranges) {
                    parts.add(part(range, isBackward));
                }
                return new Rows(this, parts, isBackward);
            } catch (RuntimeException e) {
                parts.forEach(Rows.Part::close);
                throw failure("scan", e);
            } catch (Error e) {
                parts.forEach(Rows.Part::close);
                throw e;
            }
        }
    }

    private Rows.Part part(Range range, boolean isBackward) {
        KeyRange keys =
                range.to() == null ? KeyRange.atLeast(range.from()) : KeyRange.of(range.from(), range.to());
        List<Map.Entry<byte[], byte[]>> waiting = uncommitted.rows(range, isBackward);
        KviltIterator rows = isBackward ? db.scanReverse(keys) : db.scan(keys);
        try {
            return new Rows.Part(rows, waiting);
        } catch (Throwable e) {
            rows.close();
            throw e;
        }
    }

    /** Bytes of what waits for a commit, about. */
    long uncommittedBytes() {
        return uncommitted.bytes();
    }

    /** How many rows there are, about; those that wait may be counted twice. */
    long rows() {
        check();
        try {
            return db.describe().keyspaces().stream()
                            .filter(keyspace -> keyspace.name().isEmpty())
                            .mapToLong(keyspace -> keyspace.rows())
                            .sum()
                    + uncommitted.count();
        } catch (RuntimeException e) {
            throw failure("count the rows of", e);
        }
    }

    void check() {
        if (!isOpen) {
            throw new InvalidStateStoreException("Store " + name + " is currently closed");
        }
    }

    /** As {@link #check}, and that no read has found damage. Not for restores: see {@link #commit}. */
    private void checkWhole() {
        check();
        KviltException found = damage;
        if (found != null) {
            throw restarting(found);
        }
    }

    /** What Kafka is to make of an exception. */
    RuntimeException failure(String what, RuntimeException e) {
        if (e instanceof KviltException kvilt) {
            if (kvilt.kind() == KviltException.Kind.CORRUPTED) {
                return damaged(kvilt);
            }
            return new ProcessorStateException(told(what) + ": " + e.getMessage(), e);
        }
        if (e instanceof IllegalStateException && !isOpen) {
            return new InvalidStateStoreException("Store " + name + " is currently closed", e);
        }
        return e;
    }

    /** Kafka closes the task and opens it again; that open makes the store anew. */
    private RuntimeException damaged(KviltException e) {
        LOG.error("{}", told("read"), e);
        try {
            note.write(e.getMessage());
        } catch (IOException also) {
            // Without it the next open would find all in order, and go on with the store.
            e.addSuppressed(also);
            return new ProcessorStateException(told("note the damage of") + ": " + also.getMessage(), e);
        }
        // Behind the note, which the open that follows looks for.
        damage = e;
        return restarting(e);
    }

    /**
     * What Kafka throws itself where another instance has taken its tasks: the thread closes all of its tasks, joins its
     * group again, and goes on from the committed offsets.
     *
     * <p>Not {@code TaskCorruptedException}, for which Kafka makes one task anew and asks for a rebalance. If the assignment
     * comes before that task was initialized, Kafka 4.4.0 closes it and makes another one, which does not know that its
     * offsets are to be reset: the events that it had polled are never processed.
     */
    private TaskMigratedException restarting(KviltException e) {
        return new TaskMigratedException(told("read") + ", so its task is closed and restored: " + e.getMessage(), e);
    }

    /** Closes it. What was not committed is lost, and Kafka replays it. */
    @Override
    public void close() {
        synchronized (position) {
            boolean was = isOpen;
            isOpen = false;
            if (was) {
                gauges.remove();
            }
            uncommitted.clear();
            try {
                if (was) {
                    unmarkCommitted();
                }
            } catch (KviltException e) {
                LOG.warn("{}", told("close"), e);
            }
            try {
                shut();
            } finally {
                // Behind the store: the last of a budget closes what all of them share.
                if (was) {
                    Budgets.release(config.memoryBudget);
                }
            }
        }
    }

    private void shut() {
        if (db != null) {
            try {
                db.close();
            } catch (KviltException e) {
                LOG.warn("{}", told("close"), e);
            }
        }
    }

    private String told(String what) {
        return "Cannot " + what + " the store " + name + " of task " + context.taskId() + " in " + path;
    }
}
