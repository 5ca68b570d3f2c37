package io.kvilt;

/**
 * A named map of its own inside a store, with the same methods as {@link Kvilt}; what RocksDB calls a column family.
 *
 * <p>Keys of different keyspaces never meet. A keyspace is a short prefix of the keys, no file and no memory of its
 * own, so a hundred thousand of them cost nothing; one snapshot and one {@link WriteBatch} span them all. Closing one
 * ends this object, and nothing else: the rows stay, and {@link Kvilt#keyspace(String)} opens it again.
 */
public final class Keyspace extends KviltWriter {
    private final Kvilt store;
    private final String name;

    Keyspace(Kvilt store, String name, long number) {
        this.store = store;
        this.name = name;
        this.handle = Handle.shared(
                this, number, "the keyspace `" + name + "` of " + store, Native::freeView, store.handle);
    }

    @Override
    Kvilt store() {
        return store;
    }

    /**
     * Its name.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    @Override
    public String toString() {
        return "Keyspace(" + name + " of " + store + ")";
    }
}
