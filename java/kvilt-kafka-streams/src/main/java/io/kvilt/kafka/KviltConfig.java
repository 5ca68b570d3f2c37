package io.kvilt.kafka;

import io.kvilt.Engine;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Settings of all Kvilt stores of an application, given beside those of {@link StreamsConfig}. Everything has a
 * default; what makes no sense is refused when a store is opened, with the name of the setting.
 */
public final class KviltConfig {
    /**
     * Memory for all stores of the process together, outside of Java's heap, in bytes; at least 1 MiB. Default: a
     * quarter of the memory that the process may use. Applications in one process that give the same number share it;
     * those that give different ones each have theirs.
     */
    public static final String MEMORY_BUDGET_BYTES_CONFIG = "kvilt.memory.budget.bytes";

    /**
     * Which engine keeps the rows: {@code even}, {@code kvell} or {@code teks}. Default: the one that made the store,
     * and {@code even} for a new one. A store is not changed from one to another; remove the local state to have it
     * restored into the other.
     */
    public static final String ENGINE_CONFIG = "kvilt.engine";

    /**
     * What survives a crash of the machine. Default {@code async}: a store falls back to a commit of the last half
     * second, and the rest comes from the changelog. {@code sync}: each commit is synced to the disk before it returns.
     * The death of the process alone loses no commit at either.
     */
    public static final String DURABILITY_CONFIG = "kvilt.durability";

    /**
     * Bytes of writes that a transactional store of an exactly-once application holds back until its task commits; at
     * most 128 MiB. Default: 64 MiB. When there are more, all are written before the commit, and if the task
     * ends without it the store is removed at its next open, and restored from the beginning of its changelog. Kafka's own {@code statestore.uncommitted.max.bytes} makes tasks
     * commit before that.
     *
     * <p>Stores are transactional by {@code enable.transactional.statestores=true}, from Kafka 4.4 on. Older ones do
     * not tell a store of an exactly-once task when the task commits, so there the line changes nothing: nothing is
     * held back, and what a crash leaves is restored as a whole, as it is with RocksDB.
     */
    public static final String UNCOMMITTED_BYTES_MAX_CONFIG = "kvilt.uncommitted.bytes.max";

    private static final long UNCOMMITTED_BYTES_DEFAULT = 64 << 20;

    /** Together with what an operation costs in a batch, below what {@link Storage} allows a batch to have. */
    private static final long UNCOMMITTED_BYTES_LIMIT = 128 << 20;

    private static final long MEMORY_BYTES_MIN = 1 << 20;

    /** Zero for the process's own budget. */
    final long memoryBudget;

    /** Null for the default. */
    final Engine engine;

    final boolean isSynced;
    final long uncommittedBytesMax;
    final boolean isExactlyOnce;

    /** Whether writes wait for commits. */
    final boolean isTransactional;

    private static final String TRANSACTIONAL_CONFIG = "enable.transactional.statestores";

    /** Whether Kafka knows that setting. One that does not would leave writes waiting until the task is closed. */
    private static final boolean HAS_TRANSACTIONS = StreamsConfig.configDef().names().contains(TRANSACTIONAL_CONFIG);

    /** For tests alone, which commit by themselves: takes Kafka for one that knows it. */
    static final String HAS_TRANSACTIONS_CONFIG = "__kvilt.has.transactions__";

    KviltConfig(Map<String, ?> configs) {
        memoryBudget = number(configs, MEMORY_BUDGET_BYTES_CONFIG, 0, MEMORY_BYTES_MIN, Long.MAX_VALUE);
        uncommittedBytesMax = number(
                configs, UNCOMMITTED_BYTES_MAX_CONFIG, UNCOMMITTED_BYTES_DEFAULT, 0, UNCOMMITTED_BYTES_LIMIT);
        String durability = text(configs, DURABILITY_CONFIG, "async");
        isSynced = switch (durability) {
            case "async" -> false;
            case "sync" -> true;
            default -> throw new ConfigException(DURABILITY_CONFIG, durability, "it is `async` or `sync`");
        };
        String named = text(configs, ENGINE_CONFIG, null);
        try {
            engine = named == null ? null : Engine.valueOf(named.toUpperCase(Locale.ROOT));
        } catch (IllegalArgumentException e) {
            throw new ConfigException(ENGINE_CONFIG, named, "it is `even`, `kvell` or `teks`");
        }
        // Every guarantee but at_least_once needs that nothing is seen of a task that did not commit.
        Object guarantee = configs.get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG);
        isExactlyOnce = guarantee != null && !StreamsConfig.AT_LEAST_ONCE.equals(guarantee.toString());
        isTransactional = isExactlyOnce
                && isTrue(configs, TRANSACTIONAL_CONFIG)
                && (HAS_TRANSACTIONS || isTrue(configs, HAS_TRANSACTIONS_CONFIG));
    }

    private static boolean isTrue(Map<String, ?> configs, String name) {
        return Boolean.parseBoolean(text(configs, name, "false"));
    }

    private static String text(Map<String, ?> configs, String name, String otherwise) {
        Object given = configs.get(name);
        return given == null ? otherwise : given.toString().trim().toLowerCase(Locale.ROOT);
    }

    private static long number(Map<String, ?> configs, String name, long otherwise, long min, long max) {
        String given = text(configs, name, null);
        if (given == null) {
            return otherwise;
        }
        long number;
        try {
            number = Long.parseLong(given);
        } catch (NumberFormatException e) {
            throw new ConfigException(name, given, "it is a number of bytes");
        }
        if (number < min || number > max) {
            throw new ConfigException(name, given, "it is from " + min + " to " + max + " bytes");
        }
        return number;
    }
}
