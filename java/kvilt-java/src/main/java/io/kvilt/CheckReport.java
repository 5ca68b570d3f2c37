package io.kvilt;

import java.util.List;

/** What a check read, and what it found. Immutable. */
public final class CheckReport {
    private final List<String> told;

    CheckReport(List<String> told) {
        this.told = List.copyOf(told);
    }

    /**
     * Whether nothing is damaged.
     *
     * @return whether the store is sound
     */
    public boolean isSound() {
        return damages().isEmpty();
    }

    /**
     * Each damage: what it is, in which file, and where.
     *
     * @return the damages; none for a sound store
     */
    public List<String> damages() {
        return told.subList(3, told.size());
    }

    /**
     * Files read.
     *
     * @return how many
     */
    public long files() {
        return Long.parseLong(told.get(0));
    }

    /**
     * Bytes verified.
     *
     * @return bytes
     */
    public long bytes() {
        return Long.parseLong(told.get(1));
    }

    /**
     * Entries verified.
     *
     * @return how many
     */
    public long entries() {
        return Long.parseLong(told.get(2));
    }
}
