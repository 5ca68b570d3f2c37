package io.kvilt.bench;

import io.kvilt.Engine;
import io.kvilt.KeyRange;
import io.kvilt.Kvilt;
import io.kvilt.KviltIterator;
import io.kvilt.Options;
import java.nio.file.Path;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.LRUCache;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteOptions;

/** A store that is measured: the same four operations, by the calls that its users would write. */
interface Contestant extends AutoCloseable {
    String name();

    byte[] get(byte[] key) throws Exception;

    void put(byte[] key, byte[] value) throws Exception;

    void batch(byte[][] keys, byte[] value) throws Exception;

    /** Reads up to so many rows from a key on, and returns the bytes of their keys and values. */
    long scan(byte[] from, int rows) throws Exception;

    /** The same by the call of ours that is told how many rows will be read, where there is one. */
    default long scanTold(byte[] from, int rows) throws Exception {
        return scan(from, rows);
    }

    @Override
    void close();

    /** Kvilt, with a memory budget that holds everything. */
    final class OfKvilt implements Contestant {
        private final String name;
        private final Kvilt db;

        OfKvilt(Engine engine, Path place, int rowBytes, long budget) {
            name = "Kvilt " + engine.name().toLowerCase(java.util.Locale.ROOT);
            Options options = new Options().setEngine(engine).setMemoryBudget(budget);
            if (engine == Engine.TEKS) {
                options.setRowBytes(rowBytes);
            }
            db = Kvilt.open(options, place);
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public byte[] get(byte[] key) {
            return db.get(key);
        }

        @Override
        public void put(byte[] key, byte[] value) {
            db.put(key, value);
        }

        @Override
        public void batch(byte[][] keys, byte[] value) {
            try (io.kvilt.WriteBatch batch = new io.kvilt.WriteBatch()) {
                for (byte[] key : keys) {
                    batch.put(key, value);
                }
                db.write(batch);
            }
        }

        @Override
        public long scan(byte[] from, int rows) {
            try (KviltIterator at = db.newIterator()) {
                at.seek(from);
                return read(at, rows);
            }
        }

        @Override
        public long scanTold(byte[] from, int rows) {
            try (KviltIterator at = db.scan(KeyRange.atLeast(from), rows)) {
                return read(at, rows);
            }
        }

        private static long read(KviltIterator at, int rows) {
            long bytes = 0;
            for (int i = 0; i < rows && at.isValid(); i++, at.next()) {
                bytes += at.key().length + at.value().length;
            }
            return bytes;
        }

        @Override
        public void close() {
            db.close();
        }
    }

    /** RocksDB by its own classes: its defaults, with a block cache that holds everything. */
    final class OfRocksDb implements Contestant {
        static {
            RocksDB.loadLibrary();
        }

        private final LRUCache cache;
        private final org.rocksdb.Options options;
        private final RocksDB db;
        private final WriteOptions writing = new WriteOptions();

        OfRocksDb(Path place, long budget) throws RocksDBException {
            cache = new LRUCache(budget);
            options = new org.rocksdb.Options()
                    .setCreateIfMissing(true)
                    .setTableFormatConfig(new BlockBasedTableConfig().setBlockCache(cache));
            db = RocksDB.open(options, place.toString());
        }

        @Override
        public String name() {
            return "RocksDB";
        }

        @Override
        public byte[] get(byte[] key) throws RocksDBException {
            return db.get(key);
        }

        @Override
        public void put(byte[] key, byte[] value) throws RocksDBException {
            db.put(key, value);
        }

        @Override
        public void batch(byte[][] keys, byte[] value) throws RocksDBException {
            try (org.rocksdb.WriteBatch batch = new org.rocksdb.WriteBatch()) {
                for (byte[] key : keys) {
                    batch.put(key, value);
                }
                db.write(writing, batch);
            }
        }

        @Override
        public long scan(byte[] from, int rows) {
            try (RocksIterator at = db.newIterator()) {
                at.seek(from);
                long bytes = 0;
                for (int i = 0; i < rows && at.isValid(); i++, at.next()) {
                    bytes += at.key().length + at.value().length;
                }
                return bytes;
            }
        }

        @Override
        public void close() {
            db.close();
            writing.close();
            options.close();
            cache.close();
        }
    }
}
