package io.kvilt;

import java.time.Duration;
import java.util.Objects;

/**
 * What survives a crash of the machine. No level loses a write that returned to the death of the process. Immutable.
 *
 * <p>After any crash a store is what it was at some moment before: never a later write without an earlier one, never
 * half a batch. {@link Kvilt#sync()} and {@link Kvilt#close()} make everything durable at either level.
 */
public final class Durability {
    private static final Durability SYNC = new Durability(null);

    /** Null means that each write is synced. */
    final Duration interval;

    private Durability(Duration interval) {
        this.interval = interval;
    }

    /**
     * A write returns when every reader can see it; a checkpoint in the background makes it durable, every half second.
     * A power cut loses at most what came after the last checkpoint. The default.
     *
     * @return the level
     */
    public static Durability async() {
        return async(Duration.ofMillis(500));
    }

    /**
     * As {@link #async()}, with checkpoints every {@code interval}.
     *
     * @param interval the time between the beginnings of checkpoints
     * @return the level
     */
    public static Durability async(Duration interval) {
        return new Durability(Objects.requireNonNull(interval, "interval"));
    }

    /**
     * A write returns when it is durable: none is lost, not to a power cut either. Writers that come together share a
     * sync, so many threads or a {@link WriteBatch} are fast.
     *
     * @return the level
     */
    public static Durability sync() {
        return SYNC;
    }

    @Override
    public String toString() {
        return interval == null ? "sync" : "async " + interval;
    }
}
