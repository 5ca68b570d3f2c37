package io.kvilt;

import java.lang.System.Logger;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Cleaner;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongConsumer;

/**
 * What a Java object has on the other side of the border, and until when it may be used.
 *
 * <p>Calls are counted: {@link #enter} before, {@link #leave} behind. Closing lets no further call in, and waits for
 * nobody: the native side is let go of by whoever is last, the one who closes or the last call that leaves. Counts are
 * spread over stripes by thread, so that calls of several threads do not write the same cache line.
 *
 * <p>Why nothing is let go of while a call runs: a call counts itself first and looks at {@code isClosed} then; the one
 * who closes sets it first and looks at the counts then. Both are sequentially consistent, so one of them sees the
 * other. Once it is set no new call comes in, so stripes that were zero at some moment after that, each at its own, are
 * zero for good but for calls that have seen it, and these use nothing. Why it is let go of at all: whoever counts down
 * looks at the stripes after that, if it is closed, and the last one to do so finds them all zero.
 *
 * <p>The native side is the caller's until the factory method returns. If that throws, the caller lets go of it, and
 * nobody else does.
 *
 * <p>It must not know the Java object whose it is, or that would never become unreachable.
 */
final class Handle implements Runnable {
    /** How far stripes lie apart, in longs: two cache lines, as processors fetch them in pairs. */
    private static final int STRIDE = 16;

    /** Stripes of what several threads use at once, a power of two. */
    private static final int STRIPES =
            Integer.highestOneBit(Math.min(64, Math.max(4, 4 * Runtime.getRuntime().availableProcessors() - 1)));

    private static final VarHandle COUNTS = MethodHandles.arrayElementVarHandle(long[].class);
    private static final VarHandle IS_FREE;
    private static final Cleaner CLEANER = Cleaner.create();
    private static final Logger LOGGER = System.getLogger("io.kvilt");

    /** Whether to remember where things were opened, to tell of it if nobody closes them. */
    private static final boolean TRACKS = Boolean.getBoolean("kvilt.track");

    static {
        try {
            IS_FREE = MethodHandles.lookup().findVarHandle(Handle.class, "isFree", boolean.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** The number by which the native side knows it. */
    final long number;

    private final String name;
    private final LongConsumer free;
    private final long[] counts;
    private final int mask;
    private final Handle parent;
    private final Throwable opened;

    /** What is closed with it; not null for a store only. Tests look at it. */
    Set<Handle> children;

    /** What a store does when it is closed, once. */
    private LongConsumer end;

    private Cleaner.Cleanable cleanable;
    private volatile boolean isClosed;

    /** Only by {@link #IS_FREE}: whether the native side was let go of, or is still the caller's. */
    @SuppressWarnings("unused")
    private boolean isFree = true;

    private Handle(long number, String name, LongConsumer free, int stripes, Handle parent) {
        this.number = number;
        this.name = name;
        this.free = free;
        this.counts = new long[(stripes + 1) * STRIDE];
        this.mask = stripes - 1;
        this.parent = parent;
        this.opened = TRACKS ? new Throwable("it was opened here") : null;
    }

    /** A handle of an owner that several threads use at once. */
    static Handle shared(Object owner, long number, String name, LongConsumer free, Handle parent) {
        return new Handle(number, name, free, STRIPES, parent).watch(owner);
    }

    /** A handle of an owner that one thread at a time uses. */
    static Handle single(Object owner, long number, String name, LongConsumer free, Handle parent) {
        return new Handle(number, name, free, 1, parent).watch(owner);
    }

    /** A handle of a store: it ends by {@code end}, and with it all that was opened from it. */
    static Handle store(Object owner, long number, String name, LongConsumer end, LongConsumer free) {
        Handle handle = new Handle(number, name, free, STRIPES, null);
        handle.children = ConcurrentHashMap.newKeySet();
        handle.end = end;
        return handle.watch(owner);
    }

    private Handle watch(Object owner) {
        try {
            cleanable = CLEANER.register(owner, this);
            if (parent != null) {
                parent.children.add(this);
            }
        } catch (Throwable e) {
            // The cleaner finds nothing to do.
            isClosed = true;
            if (parent != null) {
                parent.children.remove(this);
            }
            throw e;
        }
        // A store that closes meanwhile frees nothing before this. It sets its `isClosed` before it looks at its
        // children, so either it finds that this one is not free, or the line below finds that it is closed.
        IS_FREE.setVolatile(this, false);
        if (parent != null && parent.isClosed) {
            shut();
        }
        return this;
    }

    /** Begins a call; what it returns is for {@link #leave}. */
    int enter() {
        int stripe = (((int) Thread.currentThread().getId() & mask) + 1) * STRIDE;
        COUNTS.getAndAdd(counts, stripe, 1L);
        if (isClosed) {
            leave(stripe);
            throw closed();
        }
        return stripe;
    }

    /** Ends a call. */
    void leave(int stripe) {
        COUNTS.getAndAdd(counts, stripe, -1L);
        if (isClosed) {
            freeIfUnused();
        }
    }

    /** Throws if it is closed, or its store is. */
    void check() {
        if (isClosed) {
            throw closed();
        }
    }

    boolean isClosed() {
        return isClosed;
    }

    private IllegalStateException closed() {
        String what = parent != null && parent.isClosed ? parent.name : name;
        return new IllegalStateException(what + " is closed");
    }

    /**
     * Closes it. Closing again does nothing, but for a store waits until the first one is through.
     *
     * @throws KviltException if the store could not make everything durable; it is closed all the same
     */
    void close() {
        if (children == null) {
            shut();
            return;
        }
        synchronized (this) {
            if (isClosed) {
                return;
            }
            int stripe = enter();
            try {
                isClosed = true;
                // In use from here on is what calls that run have counted.
                for (Handle child : children) {
                    child.isClosed = true;
                }
                end.accept(number);
            } finally {
                for (Handle child : children) {
                    child.shut();
                }
                leave(stripe);
                cleanable.clean();
            }
        }
    }

    /** Lets no further call in, and goes when the last is out. */
    private void shut() {
        isClosed = true;
        freeIfUnused();
        if (parent != null) {
            parent.children.remove(this);
        }
        cleanable.clean();
    }

    private void freeIfUnused() {
        for (int stripe = STRIDE; stripe < counts.length; stripe += STRIDE) {
            if ((long) COUNTS.getVolatile(counts, stripe) != 0) {
                return;
            }
        }
        if (IS_FREE.compareAndSet(this, false, true)) {
            free.accept(number);
        }
    }

    /** What the cleaner does when the owner is unreachable; also what remains to do behind a close: nothing. */
    @Override
    public void run() {
        if (isClosed) {
            return;
        }
        LOGGER.log(
                Logger.Level.WARNING,
                name + " was not closed; it is closed now that nothing refers to it"
                        + (TRACKS ? "" : " (-Dkvilt.track=true tells where it was opened)"),
                opened);
        try {
            close();
        } catch (RuntimeException e) {
            LOGGER.log(Logger.Level.ERROR, name + " could not be closed well", e);
        }
    }
}
