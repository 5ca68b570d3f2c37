package io.kvilt;

/**
 * The store as it was when it was taken: every write that had returned, none that began later, batches whole.
 *
 * <p>It blocks no writer, and may be given to other threads. What it costs: versions that it can see are kept while it
 * is open, so close it when it is done.
 */
public final class Snapshot extends KviltReader {
    private final Kvilt store;

    private Snapshot(Kvilt store, long number) {
        this.store = store;
        this.handle = Handle.shared(this, number, "a snapshot of " + store, Native::freeView, store.handle);
    }

    /** One that the native side has taken; if it cannot be made, that is let go of. */
    static Snapshot of(Kvilt store, long number) {
        try {
            return new Snapshot(store, number);
        } catch (Throwable e) {
            Native.freeView(number);
            throw e;
        }
    }

    @Override
    Kvilt store() {
        return store;
    }

    /**
     * The same moment in another keyspace.
     *
     * @param keyspace a keyspace of the same store; or the store, for its default keyspace
     * @return another snapshot, to be closed by itself
     * @throws KviltException if the keyspace is another store's
     */
    public Snapshot keyspace(KviltWriter keyspace) {
        int stripe = handle.enter();
        try {
            int other = keyspace.handle.enter();
            try {
                return of(store, Native.snapshotOf(handle.number, keyspace.handle.number));
            } finally {
                keyspace.handle.leave(other);
            }
        } finally {
            handle.leave(stripe);
        }
    }

    @Override
    public String toString() {
        return "Snapshot(" + store + ")";
    }
}
