package io.kvilt;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;

/**
 * An open store: an ordered map from bytes to bytes, kept in a directory.
 *
 * <p>Any number of threads may use it at once. Methods of {@link KviltReader} and {@link KviltWriter} mean the default
 * keyspace. One process may have a directory open, once; a second open fails as {@link KviltException.Kind#BUSY} and
 * names the process that has it.
 *
 * <pre>{@code
 * try (Kvilt db = Kvilt.open("users")) {
 *     db.put("ada".getBytes(), "1815".getBytes());
 *     byte[] born = db.get("ada".getBytes());
 * }
 * }</pre>
 */
public final class Kvilt extends KviltWriter {
    private final Path path;

    /** Keeps what the store shares with others reachable. */
    private final Env env;

    private Kvilt(Options options, Path path) {
        this.path = path;
        this.env = options.env();
        byte[] place = path.toString().getBytes(StandardCharsets.UTF_8);
        byte[] settings = options.packed();
        Native.ensureLoaded();
        long number;
        if (env == null) {
            number = Native.open(place, settings, 0);
        } else {
            int stripe = env.handle.enter();
            try {
                number = Native.open(place, settings, env.handle.number);
            } finally {
                env.handle.leave(stripe);
            }
        }
        try {
            this.handle = Handle.store(this, number, "the store " + path, Native::close, Native::freeView);
        } catch (Throwable e) {
            // Or the directory would stay busy.
            try {
                Native.close(number);
            } catch (RuntimeException also) {
                e.addSuppressed(also);
            }
            Native.freeView(number);
            throw e;
        }
    }

    /**
     * Opens the store in a directory, with default settings; makes it if there is none.
     *
     * @param path the directory
     * @return the store, to be closed
     * @throws KviltException {@code INVALID_ARGUMENT} if the directory holds something else, and nothing is written to
     *     it; {@code BUSY} if it is open already; {@code CORRUPTED} or {@code UNSUPPORTED_VERSION} if its files cannot
     *     be trusted or are newer; {@code IO}
     */
    public static Kvilt open(String path) {
        return open(new Options(), Path.of(path));
    }

    /**
     * As {@link #open(String)}.
     *
     * @param path the directory
     * @return the store, to be closed
     * @throws KviltException as {@link #open(String)}
     */
    public static Kvilt open(Path path) {
        return open(new Options(), path);
    }

    /**
     * Opens the store in a directory.
     *
     * @param options settings, which may be changed and used again afterwards
     * @param path the directory
     * @return the store, to be closed
     * @throws KviltException as {@link #open(String)}; also {@code INVALID_ARGUMENT} if a setting makes no sense, with
     *     its name
     */
    public static Kvilt open(Options options, String path) {
        return open(options, Path.of(path));
    }

    /**
     * As {@link #open(Options, String)}.
     *
     * @param options settings
     * @param path the directory
     * @return the store, to be closed
     * @throws KviltException as {@link #open(Options, String)}
     */
    public static Kvilt open(Options options, Path path) {
        return new Kvilt(options, path);
    }

    @Override
    Kvilt store() {
        return this;
    }

    /**
     * Applies all operations of a batch as one: they are seen whole or not at all, by reads and after a crash. The
     * batch stays as it is, and can be cleared and filled again.
     *
     * @param batch the operations; none does nothing
     * @throws KviltException as for single writes; also {@code INVALID_ARGUMENT} if the batch has more operations or
     *     bytes than {@link Options#setBatchOperationsMax} and {@link Options#setBatchBytesMax} allow
     */
    public void write(WriteBatch batch) {
        int stripe = handle.enter();
        try {
            batch.write(handle.number);
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * The keyspace of this name, made if there is none.
     *
     * @param name its name, of 1 to 255 bytes in UTF-8
     * @return the keyspace; close it, or leave that to the store's close
     * @throws KviltException as for any write
     */
    public Keyspace keyspace(String name) {
        int stripe = handle.enter();
        try {
            long number = Native.keyspace(handle.number, name.getBytes(StandardCharsets.UTF_8));
            try {
                return new Keyspace(this, name, number);
            } catch (Throwable e) {
                Native.freeView(number);
                throw e;
            }
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * The names of all keyspaces, sorted. The default one has no name.
     *
     * @return the names
     * @throws KviltException if they cannot be read
     */
    public List<String> keyspaces() {
        int stripe = handle.enter();
        try {
            return Packed.texts(Native.keyspaces(handle.number));
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * Deletes a keyspace and all its rows. Objects of it fail from now on as {@code INVALID_ARGUMENT}; snapshots taken
     * before still see its rows.
     *
     * @param name its name
     * @return whether there was one
     * @throws KviltException as for any write
     */
    public boolean dropKeyspace(String name) {
        int stripe = handle.enter();
        try {
            return Native.dropKeyspace(handle.number, name.getBytes(StandardCharsets.UTF_8));
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * Makes durable all that completed before this call: it survives a power cut once this has returned. What RocksDB
     * calls {@code flushWal(true)}.
     *
     * @throws KviltException an error here is serious: the store is poisoned, as nobody knows what the disk kept, and
     *     takes no writes until it is opened again
     */
    public void sync() {
        int stripe = handle.enter();
        try {
            Native.sync(handle.number);
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * Makes a copy of the store, as of now, in a directory that does not exist or is empty. By hard links where the
     * file system can, so it costs little time and space; the copy is a store of its own.
     *
     * @param directory where the copy goes
     * @throws KviltException {@code INVALID_ARGUMENT} if the directory is not empty, or is inside of a store's;
     *     {@code NO_SPACE}; {@code IO}
     */
    public void checkpoint(Path directory) {
        byte[] place = directory.toString().getBytes(StandardCharsets.UTF_8);
        int stripe = handle.enter();
        try {
            Native.checkpoint(handle.number, place);
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * Figures about every part: memory, where gets found their answers, bytes written by kind, waits by reason. Cheap.
     *
     * @return the figures as of now
     */
    public Stats stats() {
        int stripe = handle.enter();
        try {
            return new Stats(Native.stats(handle.number));
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * About how many rows and bytes each keyspace has: a part of the store is read, and the rest taken for its like. A
     * small store is counted.
     *
     * @return rows and bytes
     * @throws KviltException if files cannot be read
     */
    public Description describe() {
        return describe(false);
    }

    /**
     * As {@link #describe()}; exact if {@code isDeep}, which reads all rows.
     *
     * @param isDeep whether to count
     * @return rows and bytes
     * @throws KviltException if files cannot be read
     */
    public Description describe(boolean isDeep) {
        int stripe = handle.enter();
        try {
            return new Description(Packed.texts(Native.describe(handle.number, isDeep)));
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * Reads and verifies every file: checksums, order, and that the parts agree with one another. Reads and writes go
     * on meanwhile.
     *
     * @return what was read, and every damage that was found
     * @throws KviltException if files cannot be read
     */
    public CheckReport check() {
        int stripe = handle.enter();
        try {
            return new CheckReport(Packed.texts(Native.check(handle.number)));
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * The engine that keeps the rows.
     *
     * @return the engine
     */
    public Engine engine() {
        int stripe = handle.enter();
        try {
            return Engine.named(new String(Native.engine(handle.number), StandardCharsets.UTF_8));
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * The directory it was opened with.
     *
     * @return the directory
     */
    public Path path() {
        return path;
    }

    /**
     * Makes everything durable, closes all that was opened from the store, and lets go of the directory, which can be
     * opened again at once. Calls that run in other threads end, with a result or an exception. Closing again does
     * nothing.
     *
     * @throws KviltException if not all could be made durable; the store is closed all the same
     */
    @Override
    public void close() {
        handle.close();
    }

    @Override
    public String toString() {
        return path.toString();
    }
}
