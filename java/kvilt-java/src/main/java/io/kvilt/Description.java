package io.kvilt;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** What a store holds, counted or estimated. Immutable. */
public final class Description {
    /**
     * What a keyspace holds.
     *
     * @param name its name; empty for the default one
     * @param rows rows
     * @param rowBytes bytes of their keys and values
     * @param fileBytes bytes of files that are thought to be its own: always an estimate
     */
    public record KeyspaceFigures(String name, long rows, long rowBytes, long fileBytes) {}

    private final boolean isExact;
    private final long fileBytes;
    private final long chunks;
    private final List<KeyspaceFigures> keyspaces;

    Description(List<String> told) {
        isExact = Boolean.parseBoolean(told.get(0));
        fileBytes = Long.parseLong(told.get(1));
        chunks = Long.parseLong(told.get(2));
        List<KeyspaceFigures> read = new ArrayList<>();
        for (int i = 3; i < told.size(); i += 4) {
            read.add(new KeyspaceFigures(
                    told.get(i),
                    Long.parseLong(told.get(i + 1)),
                    Long.parseLong(told.get(i + 2)),
                    Long.parseLong(told.get(i + 3))));
        }
        keyspaces = Collections.unmodifiableList(read);
    }

    /**
     * Whether rows and their bytes were counted; if not, they are estimates.
     *
     * @return whether they are exact
     */
    public boolean isExact() {
        return isExact;
    }

    /**
     * Bytes of all files.
     *
     * @return bytes
     */
    public long fileBytes() {
        return fileBytes;
    }

    /**
     * Chunks: ranges of keys that are kept together.
     *
     * @return how many
     */
    public long chunks() {
        return chunks;
    }

    /**
     * Each keyspace that has a name or rows, the default one first, then by name.
     *
     * @return the keyspaces
     */
    public List<KeyspaceFigures> keyspaces() {
        return keyspaces;
    }

    /**
     * Rows in all keyspaces.
     *
     * @return rows
     */
    public long rows() {
        return keyspaces.stream().mapToLong(KeyspaceFigures::rows).sum();
    }

    /**
     * Bytes of keys and values in all keyspaces.
     *
     * @return bytes
     */
    public long rowBytes() {
        return keyspaces.stream().mapToLong(KeyspaceFigures::rowBytes).sum();
    }
}
