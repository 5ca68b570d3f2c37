package io.kvilt;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * Memory outside the heap for the rows that an iterator reads at once. Blocks of two sizes are used again, since the
 * virtual machine takes microseconds to make a direct buffer; one that is longer than both is made for its row.
 */
final class Block {
    /** Rows of a small and of a large block, without what each row has beside it. */
    static final int SMALL_BYTES = 16 << 10;

    static final int LARGE_BYTES = 128 << 10;

    /** An eighth more, for numbers beside rows. */
    private static final int SMALL_CAPACITY = SMALL_BYTES + SMALL_BYTES / 8;

    private static final int LARGE_CAPACITY = LARGE_BYTES + LARGE_BYTES / 8;

    private static final Pool SMALL = new Pool(64);
    private static final Pool LARGE = new Pool(16);

    final ByteBuffer buffer;
    final long address;
    final int capacity;

    /** Whether an iterator has it, so that one that gives it back twice does not lend it twice. */
    private boolean isLent = true;

    private Block(int capacity) {
        this.capacity = capacity;
        this.buffer = ByteBuffer.allocateDirect(capacity).order(ByteOrder.LITTLE_ENDIAN);
        this.address = Native.address(buffer);
    }

    /** One with room for {@code bytes}, or more. */
    static Block of(int bytes) {
        boolean isSmall = bytes <= SMALL_CAPACITY;
        if (!isSmall && bytes > LARGE_CAPACITY) {
            return new Block(bytes);
        }
        Block kept = (isSmall ? SMALL : LARGE).take();
        if (kept == null) {
            return new Block(isSmall ? SMALL_CAPACITY : LARGE_CAPACITY);
        }
        kept.isLent = true;
        return kept;
    }

    /** Keeps it for the next iterator, if there is room. Nobody may read it any more. */
    void giveBack() {
        if (!isLent) {
            return;
        }
        isLent = false;
        if (capacity == SMALL_CAPACITY) {
            SMALL.keep(this);
        } else if (capacity == LARGE_CAPACITY) {
            LARGE.keep(this);
        }
    }

    /** Blocks that nobody uses: a few places, of which a thread looks at those next to its own. */
    private static final class Pool {
        private static final int PLACES_TRIED = 4;

        private final AtomicReferenceArray<Block> places;

        Pool(int size) {
            places = new AtomicReferenceArray<>(size);
        }

        Block take() {
            int first = (int) Thread.currentThread().getId() * PLACES_TRIED;
            for (int i = 0; i < PLACES_TRIED; i++) {
                int place = (first + i) & (places.length() - 1);
                if (places.getPlain(place) != null) {
                    Block block = places.getAndSet(place, null);
                    if (block != null) {
                        return block;
                    }
                }
            }
            return null;
        }

        void keep(Block block) {
            int first = (int) Thread.currentThread().getId() * PLACES_TRIED;
            for (int i = 0; i < PLACES_TRIED; i++) {
                if (places.compareAndSet((first + i) & (places.length() - 1), null, block)) {
                    return;
                }
            }
        }
    }
}
