package io.kvilt;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** Figures of a store at one moment: those that every engine has, then the engine's own. Immutable. */
public final class Stats {
    /** What a figure counts. */
    public enum Unit {
        /** Bytes. */
        BYTES,
        /** Microseconds. */
        MICROS,
        /** Anything else, by number. */
        COUNT
    }

    /**
     * One figure.
     *
     * @param name its name, the same for ever, such as {@code memory_bytes_now}
     * @param value the value
     * @param unit what it counts
     * @param isGauge whether it says how something is at this moment; if not, it counts from the open on, and never
     *     falls
     * @param help what it is, in a sentence
     */
    public record Figure(String name, long value, Unit unit, boolean isGauge, String help) {}

    private final Map<String, Figure> figures;

    Stats(byte[] lines) {
        Map<String, Figure> read = new LinkedHashMap<>();
        new String(lines, StandardCharsets.UTF_8).lines().forEach(line -> {
            String[] parts = line.split("\t", 5);
            Unit unit =
                    switch (parts[2]) {
                        case "bytes" -> Unit.BYTES;
                        case "us" -> Unit.MICROS;
                        default -> Unit.COUNT;
                    };
            long value = Long.parseUnsignedLong(parts[1]);
            read.put(parts[0], new Figure(parts[0], value, unit, Boolean.parseBoolean(parts[3]), parts[4]));
        });
        figures = Collections.unmodifiableMap(read);
    }

    /**
     * All figures, by name.
     *
     * @return the figures, in the engine's order
     */
    public Map<String, Figure> figures() {
        return figures;
    }

    /**
     * A figure's value.
     *
     * @param name the name of the figure
     * @return its value
     * @throws IllegalArgumentException if the engine has no figure of this name
     */
    public long get(String name) {
        Figure figure = figures.get(name);
        if (figure == null) {
            throw new IllegalArgumentException("the engine has no figure `" + name + "`");
        }
        return figure.value();
    }

    /**
     * Memory in use that counts against the budget of this store.
     *
     * @return bytes
     */
    public long memoryBytes() {
        return get("memory_bytes_now");
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder();
        figures.values().forEach(f -> text.append(f.name()).append(' ').append(f.value()).append('\n'));
        return text.toString();
    }
}
