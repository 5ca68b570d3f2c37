package io.kvilt;

import java.util.Locale;

/** Which engine keeps the rows. It is chosen when a store is made, and the same ever after. */
public enum Engine {
    /**
     * For keys whose popular ones lie side by side, for scans and many writes: the default. After EvenDB (EuroSys '20).
     */
    EVEN,

    /** For random reads and updates of data far beyond memory, on a fast drive. After KVell (SOSP '19). */
    KVELL,

    /**
     * For keys that are written and read in no order and scanned at once, most of them in memory. After TeksDB (POMACS
     * '19).
     */
    TEKS;

    /** As the native side calls it. */
    String engineName() {
        return name().toLowerCase(Locale.ROOT);
    }

    static Engine named(String name) {
        return valueOf(name.toUpperCase(Locale.ROOT));
    }
}
