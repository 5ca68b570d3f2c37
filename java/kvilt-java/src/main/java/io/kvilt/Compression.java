package io.kvilt;

/** How engine {@link Engine#EVEN} compresses blocks of its tables. */
public enum Compression {
    /** Not at all: the least work. The default. */
    NONE,

    /** LZ4, where that saves an eighth or more of a block. */
    LZ4
}
