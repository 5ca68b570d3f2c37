package io.kvilt;

/**
 * What several stores of one process share: one memory budget, and threads for the background. The shared cache and
 * write buffer manager of RocksDB, in one.
 *
 * <pre>{@code
 * try (Env env = new Env(256 << 20);
 *         Kvilt a = Kvilt.open(new Options().setEnv(env), "a");
 *         Kvilt b = Kvilt.open(new Options().setEnv(env), "b")) {
 *     a.put(key, value);
 * }
 * }</pre>
 *
 * <p>A store without one uses the process's own, whose budget is a quarter of the memory that the process may use.
 * Closing one does nothing to its stores.
 */
public final class Env implements AutoCloseable {
    final Handle handle;

    /**
     * An environment whose stores together use so much memory.
     *
     * @param memoryBudget bytes, at least 1 MiB; memory outside of Java's heap
     * @throws KviltException {@code INVALID_ARGUMENT} if that is less
     */
    public Env(long memoryBudget) {
        Native.ensureLoaded();
        long number = Native.openEnv(memoryBudget);
        try {
            handle = Handle.shared(this, number, "an environment", Native::freeEnv, null);
        } catch (Throwable e) {
            Native.freeEnv(number);
            throw e;
        }
    }

    /**
     * The memory that its stores may use together.
     *
     * @return bytes
     */
    public long memoryBudget() {
        int stripe = handle.enter();
        try {
            return Native.envBudget(handle.number);
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * The memory that its stores use now.
     *
     * @return bytes
     */
    public long memoryUsed() {
        int stripe = handle.enter();
        try {
            return Native.envUsed(handle.number);
        } finally {
            handle.leave(stripe);
        }
    }

    /** Lets go of it; stores that were opened with it keep sharing what they share. */
    @Override
    public void close() {
        handle.close();
    }
}
