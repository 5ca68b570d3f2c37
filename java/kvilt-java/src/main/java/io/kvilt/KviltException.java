package io.kvilt;

import java.util.Locale;

/**
 * What a store refuses, or cannot do. The message says what happened, where, and what to do about it; the
 * {@link #kind()} says what a program does next.
 *
 * <p>Unchecked, since most programs can do nothing about it where it is thrown. Use after close is no
 * {@code KviltException} but an {@link IllegalStateException}: a mistake of the program's.
 */
public final class KviltException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** What to do next, in one word. */
    public enum Kind {
        /** The call itself is wrong; nothing was changed. Mend the call. */
        INVALID_ARGUMENT,
        /** A limit of the store or of this machine is reached (memory, descriptors, snapshots). Retry with less. */
        LIMIT_REACHED,
        /** The disk is full. Nothing of this write is visible; reads and deletes go on. Free space and retry. */
        NO_SPACE,
        /** Somebody else has the store open. Wait, or stop the other one. */
        BUSY,
        /** The store was opened to be read only, and this would change it. Nothing was changed. */
        READ_ONLY,
        /** The snapshot or iterator was kept longer than the limit. Take a new one. */
        SNAPSHOT_TOO_OLD,
        /** A sync failed or a bug was seen: no more writes until the store is opened again. Reads go on. */
        POISONED,
        /** Bytes on disk contradict their checksum. Restore or repair the file that the message names. */
        CORRUPTED,
        /** The files were written by a newer Kvilt. Nothing was touched. Upgrade. */
        UNSUPPORTED_VERSION,
        /** The operating system refused a call; the message says which. */
        IO,
        /** A bug in Kvilt. Close the store and open it again, and report the message. */
        BUG,
        /** A kind that this version of the Java classes does not know. */
        OTHER;

        /** By the engine's name of it, such as {@code no-space}. */
        static Kind of(String name) {
            String wanted = name.replace('-', '_').toUpperCase(Locale.ROOT);
            for (Kind kind : values()) {
                if (kind.name().equals(wanted)) {
                    return kind;
                }
            }
            return OTHER;
        }
    }

    /** Which kind it is. */
    private final Kind kind;

    KviltException(Kind kind, String message) {
        super(message);
        this.kind = kind;
    }

    /**
     * What a program does next.
     *
     * @return the kind of the error
     */
    public Kind kind() {
        return kind;
    }

    /**
     * Whether the same call may succeed later, without another argument or a store that was opened again: when there
     * is space again, when somebody else has closed the store, when fewer things are open.
     *
     * @return true for {@link Kind#LIMIT_REACHED}, {@link Kind#NO_SPACE}, {@link Kind#BUSY} and {@link Kind#IO}
     */
    public boolean isRetriable() {
        return switch (kind) {
            case LIMIT_REACHED, NO_SPACE, BUSY, IO -> true;
            default -> false;
        };
    }
}
