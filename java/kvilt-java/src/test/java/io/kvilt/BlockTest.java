package io.kvilt;

import static io.kvilt.ReadsAndWritesTest.b;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/** Which blocks are used again. Alone, as threads of other tests may look for blocks at the same places. */
@Isolated
class BlockTest {
    @TempDir
    Path directory;

    @Test
    void aBlockIsUsedAgainOnlyIfNoOtherThreadMayBeReadingIt() throws Exception {
        try (Kvilt db = Kvilt.open(directory.resolve("store"))) {
            for (int i = 0; i < 20_000; i++) {
                db.put(b("key" + i), new byte[100]);
            }
            KviltIterator alone = db.scan(KeyRange.all());
            Block block = alone.block;
            assertTrue(alone.isValid());
            alone.close();
            assertTrue(isLentNext(block));

            KviltIterator read = db.scan(KeyRange.all());
            block = read.block;
            elsewhere(read::isValid);
            read.close();
            assertFalse(isLentNext(block), "the other thread may be in the middle of a row");

            KviltIterator moved = db.scan(KeyRange.all());
            block = moved.block;
            elsewhere(moved::isValid);
            moved.seekToFirst();
            while (moved.block == block) {
                moved.next();
            }
            assertFalse(isLentNext(block), "the other thread may be in the middle of a row");
            block = moved.block;
            elsewhere(moved::close);
            assertFalse(isLentNext(block), "who made it may be in the middle of a row");
        }
    }

    private static void elsewhere(Runnable call) throws InterruptedException {
        Thread thread = new Thread(call);
        thread.start();
        thread.join();
    }

    /** Whether the pool has a block where this thread, which takes all of those out, looks for one. */
    private static boolean isLentNext(Block block) {
        boolean isThere = false;
        for (int i = 0; i < 8; i++) {
            isThere |= Block.of(block.capacity) == block;
        }
        return isThere;
    }

    @Test
    void aBlockThatIsGivenBackTwiceIsLentOnce() {
        Block block = Block.of(1);
        isLentNext(block);
        block.giveBack();
        block.giveBack();
        assertEquals(block, Block.of(1));
        assertFalse(isLentNext(block));
    }
}
