package io.kvilt;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;

/**
 * How to open a store. Everything has a default; what makes no sense is refused by {@link Kvilt#open(Options, String)}
 * with the name of the setting, and never bent. One thread at a time may use it; it may be used for several stores.
 *
 * <p>Most programs set {@link #setMemoryBudget} or {@link #setEnv}, and {@link #setDurability}, and nothing else.
 */
public final class Options {
    /** As the native side calls them. */
    private final Map<String, String> settings = new LinkedHashMap<>();

    private Env env;

    /** Defaults. */
    public Options() {}

    /**
     * The same settings, to be changed apart.
     *
     * @param other the options to copy
     */
    public Options(Options other) {
        settings.putAll(other.settings);
        env = other.env;
    }

    /**
     * Which engine keeps the rows. Default: the one that made the store, and for a new one {@link Engine#EVEN}. To open
     * a store by another than made it is refused.
     *
     * @param engine the engine
     * @return this
     */
    public Options setEngine(Engine engine) {
        return set("engine", engine.engineName());
    }

    /**
     * Whether to make a store if the directory is missing or empty. Default: true, unlike RocksDB.
     *
     * @param create whether to
     * @return this
     */
    public Options setCreateIfMissing(boolean create) {
        return set("create_if_missing", create);
    }

    /**
     * Whether to refuse a store that is there already. Default: false.
     *
     * @param refuse whether to
     * @return this
     */
    public Options setErrorIfExists(boolean refuse) {
        return set("error_if_exists", refuse);
    }

    /**
     * Whether to open it to be read only: no file is made, changed or removed, and any number of processes may do so at
     * once. Default: false.
     *
     * @param readOnly whether to
     * @return this
     */
    public Options setReadOnly(boolean readOnly) {
        return set("read_only", readOnly);
    }

    /**
     * What survives a crash of the machine. Default: {@link Durability#async()}. May differ from one open to the next.
     *
     * @param durability the level
     * @return this
     */
    public Options setDurability(Durability durability) {
        settings.remove("durability_sync");
        settings.remove("durability_async_us");
        if (durability.interval == null) {
            return set("durability_sync", true);
        }
        return set("durability_async_us", durability.interval.toNanos() / 1000);
    }

    /**
     * Memory for this store alone, outside of Java's heap: one number for all that grows. Default: that of the
     * {@link Env}. Excludes {@link #setEnv}.
     *
     * @param bytes bytes, at least 1 MiB
     * @return this
     */
    public Options setMemoryBudget(long bytes) {
        return set("memory_budget", bytes);
    }

    /**
     * What the store shares with others: memory budget and background threads. Default: the process's own.
     *
     * @param env the environment; null for the process's own
     * @return this
     */
    public Options setEnv(Env env) {
        this.env = env;
        return this;
    }

    /**
     * How old a snapshot or iterator may become; an older one fails as {@code SNAPSHOT_TOO_OLD} and costs nothing any
     * more. Default: 24 hours.
     *
     * @param age the age
     * @return this
     */
    public Options setSnapshotAgeMax(Duration age) {
        return set("snapshot_age_max_ms", age.toMillis());
    }

    /**
     * Operations that a {@link WriteBatch} may have. Default: 32,768; at most 4,194,304.
     *
     * @param operations the operations
     * @return this
     */
    public Options setBatchOperationsMax(int operations) {
        return set("batch_operations_max", operations);
    }

    /**
     * Bytes of keys and values that a {@link WriteBatch} may have. Default: 72 MiB; at most 256 MiB.
     *
     * @param bytes the bytes
     * @return this
     */
    public Options setBatchBytesMax(long bytes) {
        return set("batch_bytes_max", bytes);
    }

    /**
     * Of engine {@code EVEN}: how blocks of tables are compressed. Default: {@link Compression#NONE}.
     *
     * @param compression how
     * @return this
     */
    public Options setCompression(Compression compression) {
        return set("compression", compression.name().toLowerCase(Locale.ROOT));
    }

    /**
     * Of engine {@code EVEN}: bytes that a chunk may hold before it must be split. Default: 10 MiB.
     *
     * @param bytes the bytes
     * @return this
     */
    public Options setChunkBytesMax(long bytes) {
        return set("chunk_bytes_max", bytes);
    }

    /**
     * Of engine {@code EVEN}: bytes at which the background splits a chunk. Default: 7 MiB.
     *
     * @param bytes the bytes
     * @return this
     */
    public Options setChunkBytesRebalance(long bytes) {
        return set("chunk_bytes_rebalance", bytes);
    }

    /**
     * Of engine {@code EVEN}: bytes below which a chunk is coalesced with a neighbour. Default: 1 MiB.
     *
     * @param bytes the bytes
     * @return this
     */
    public Options setChunkBytesMin(long bytes) {
        return set("chunk_bytes_min", bytes);
    }

    /**
     * Of engine {@code EVEN}: bytes of log that a chunk outside memory may have before a scan of it pays for a rewrite.
     * Default: 2 MiB.
     *
     * @param bytes the bytes
     * @return this
     */
    public Options setLogBytesMaxCold(long bytes) {
        return set("log_bytes_max_cold", bytes);
    }

    /**
     * Of engine {@code EVEN}: bytes of log that a chunk in memory may have. Default: 20 MiB.
     *
     * @param bytes the bytes
     * @return this
     */
    public Options setLogBytesMaxCached(long bytes) {
        return set("log_bytes_max_cached", bytes);
    }

    /**
     * Of engine {@code EVEN}: bytes of a table's block before compression. Default: 4096.
     *
     * @param bytes the bytes
     * @return this
     */
    public Options setBlockBytes(int bytes) {
        return set("block_bytes", bytes);
    }

    /**
     * Of engine {@code KVELL}: shards of a store that is made, 1 to 64. Default: one for each core.
     *
     * @param shards the shards
     * @return this
     */
    public Options setShards(int shards) {
        return set("shards", shards);
    }

    /**
     * Of engine {@code KVELL}: reads and writes that a shard has in flight at once. Default: 64.
     *
     * @param depth how many
     * @return this
     */
    public Options setQueueDepth(int depth) {
        return set("queue_depth", depth);
    }

    /**
     * Of engine {@code TEKS}: bytes of key and value that a row has, about, 1 to 1 MiB. Default: 128.
     *
     * @param bytes the bytes
     * @return this
     */
    public Options setRowBytes(int bytes) {
        return set("row_bytes", bytes);
    }

    private Options set(String name, Object value) {
        settings.put(name, Objects.requireNonNull(value).toString());
        return this;
    }

    Env env() {
        return env;
    }

    /** Names and values in turns. */
    byte[] packed() {
        List<String> items = new ArrayList<>();
        settings.forEach((name, value) -> {
            items.add(name);
            items.add(value);
        });
        return Packed.of(items);
    }

    @Override
    public String toString() {
        return "Options" + settings + (env == null ? "" : " in " + env);
    }
}
