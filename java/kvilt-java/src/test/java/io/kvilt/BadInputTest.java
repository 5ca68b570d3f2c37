package io.kvilt;

import static io.kvilt.ReadsAndWritesTest.b;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvilt.KviltException.Kind;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What a store refuses, and what it says then. */
class BadInputTest {
    @TempDir
    Path directory;

    private static KviltException refused(Kind kind, String part, Executable call) {
        KviltException e = assertThrows(KviltException.class, call);
        assertEquals(kind, e.kind(), e.getMessage());
        assertTrue(e.getMessage().contains(part), e.getMessage());
        return e;
    }

    private Kvilt open() {
        return Kvilt.open(new Options().setMemoryBudget(64 << 20), directory.resolve("store"));
    }

    @Test
    void nullIsRefusedByJava() {
        try (Kvilt db = open();
                WriteBatch batch = new WriteBatch();
                KviltIterator rows = db.newIterator()) {
            List<Executable> calls = List.of(
                    () -> db.get((byte[]) null),
                    () -> db.get(b("k"), (byte[]) null),
                    () -> db.get((ByteBuffer) null, ByteBuffer.allocate(1)),
                    () -> db.keyExists(null),
                    () -> db.getMany(null),
                    () -> db.getMany(Arrays.asList(b("k"), null)),
                    () -> db.put(null, b("v")),
                    () -> db.put(b("k"), null),
                    () -> db.put(ByteBuffer.allocate(1), null),
                    () -> db.delete((byte[]) null),
                    () -> db.deleteRange(null, b("k")),
                    () -> db.deleteRange(b("k"), null),
                    () -> db.deleteRange(null),
                    () -> db.compareAndSwap(null, null, b("v")),
                    () -> db.putIfAbsent(b("k"), null),
                    () -> db.scan(null),
                    () -> db.keyspace(null),
                    () -> db.write(null),
                    () -> db.checkpoint(null),
                    () -> batch.put(null, b("v")),
                    () -> batch.put(b("k"), null),
                    () -> batch.put((Keyspace) null, b("k"), b("v")),
                    () -> batch.delete((byte[]) null),
                    () -> rows.seek((byte[]) null),
                    () -> KeyRange.prefix(null),
                    () -> KeyRange.all().under(null),
                    () -> Kvilt.open((String) null),
                    () -> Kvilt.open(null, directory),
                    () -> new Options().setEngine(null));
            for (int i = 0; i < calls.size(); i++) {
                int number = i;
                assertThrows(NullPointerException.class, calls.get(i), () -> "call " + number);
            }
            assertEquals(0, db.describe(true).rows());
            assertEquals(0, batch.count());
        }
    }

    @ParameterizedTest
    @EnumSource(Engine.class)
    void keysAndValuesBeyondTheLimitsAreRefusedAndNothingIsWritten(Engine engine) {
        Options options = new Options().setEngine(engine).setMemoryBudget(64 << 20);
        try (Kvilt db = Kvilt.open(options, directory.resolve("store"))) {
            byte[] longKey = new byte[(64 << 10) + 1];
            byte[] longValue = new byte[(64 << 20) + 1];
            for (byte[] key : List.of(longKey, new byte[200_000])) {
                refused(Kind.INVALID_ARGUMENT, "key", () -> db.put(key, b("v")));
                refused(Kind.INVALID_ARGUMENT, "key", () -> db.get(key));
                refused(Kind.INVALID_ARGUMENT, "key", () -> db.get(key, new byte[1]));
                refused(Kind.INVALID_ARGUMENT, "key", () -> db.delete(key));
                refused(Kind.INVALID_ARGUMENT, "key", () -> db.keyExists(key));
                refused(Kind.INVALID_ARGUMENT, "key", () -> db.getMany(List.of(b("k"), key)));
                refused(Kind.INVALID_ARGUMENT, "key", () -> db.putIfAbsent(key, b("v")));
            }
            refused(Kind.INVALID_ARGUMENT, "value", () -> db.put(b("k"), longValue));
            try (WriteBatch batch = new WriteBatch()) {
                batch.put(b("a"), b("1"));
                batch.put(longKey, b("v"));
                refused(Kind.INVALID_ARGUMENT, "key", () -> db.write(batch));
                batch.clear();
                for (int i = 0; i <= 32_768; i++) {
                    batch.put(b("k" + i), b("v"));
                }
                refused(Kind.INVALID_ARGUMENT, "operations", () -> db.write(batch));
            }
            assertNull(db.get(b("a")));
            try (KviltIterator rows = db.newIterator()) {
                rows.seek(new byte[300_000]);
                assertFalse(rows.isValid());
            }
            assertEquals(0, db.describe(true).rows());
        }
    }

    @Test
    void settingsThatMakeNoSenseAreRefusedByName() {
        Path path = directory.resolve("store");
        refused(Kind.INVALID_ARGUMENT, "memory_budget", () ->
                Kvilt.open(new Options().setMemoryBudget(17), path));
        refused(Kind.INVALID_ARGUMENT, "row_bytes", () ->
                Kvilt.open(new Options().setEngine(Engine.EVEN).setRowBytes(100), path));
        refused(Kind.INVALID_ARGUMENT, "create_if_missing", () ->
                Kvilt.open(new Options().setCreateIfMissing(false), path));
        refused(Kind.INVALID_ARGUMENT, "durability", () ->
                Kvilt.open(new Options().setDurability(Durability.async(Duration.ZERO)), path));
        refused(Kind.INVALID_ARGUMENT, "snapshot", () ->
                Kvilt.open(new Options().setSnapshotAgeMax(Duration.ZERO), path));
        refused(Kind.INVALID_ARGUMENT, "must be at least", () -> new Env(1000));
        assertFalse(Files.exists(path));
        try (Env env = new Env(16 << 20)) {
            refused(Kind.INVALID_ARGUMENT, "exclude each other", () ->
                    Kvilt.open(new Options().setEnv(env).setMemoryBudget(16 << 20), path));
        }
        Kvilt.open(new Options().setEngine(Engine.TEKS).setRowBytes(100), path).close();
        refused(Kind.INVALID_ARGUMENT, "teks", () -> Kvilt.open(new Options().setEngine(Engine.KVELL), path));
        refused(Kind.INVALID_ARGUMENT, "error_if_exists", () ->
                Kvilt.open(new Options().setErrorIfExists(true), path));
        try (Kvilt db = open()) {
            refused(Kind.INVALID_ARGUMENT, "", () -> db.keyspace(""));
            refused(Kind.INVALID_ARGUMENT, "", () -> db.keyspace("x".repeat(256)));
        }
    }

    @Test
    void aDirectoryOfSomethingElseIsRefusedAndStaysAsItIs() throws IOException {
        Path path = Files.createDirectory(directory.resolve("rocksdb"));
        // What RocksDB leaves there, by its names.
        for (String name : List.of("CURRENT", "IDENTITY", "LOG", "MANIFEST-000005", "OPTIONS-000007", "000004.log")) {
            Files.writeString(path.resolve(name), name);
        }
        KviltException e =
                refused(Kind.INVALID_ARGUMENT, "is not a store", () -> Kvilt.open(path));
        assertTrue(e.getMessage().contains("CURRENT"), e.getMessage());
        assertFalse(e.isRetriable());
        try (Stream<Path> files = Files.list(path)) {
            assertEquals(6, files.count());
        }
        Path file = Files.writeString(directory.resolve("file"), "x");
        refused(Kind.INVALID_ARGUMENT, "not a directory", () -> Kvilt.open(file));
    }

    @Test
    void aSecondOpenOfADirectoryIsBusyAndGoesOnceTheFirstIsClosed() {
        Kvilt db = open();
        KviltException e = refused(Kind.BUSY, Long.toString(ProcessHandle.current().pid()), this::open);
        assertTrue(e.isRetriable());
        db.put(b("k"), b("v"));
        db.close();
        try (Kvilt again = open()) {
            assertArrayEquals(b("v"), again.get(b("k")));
        }
    }

    @Test
    void aStoreThatIsReadOnlyIsReadAndNothingElse() {
        try (Kvilt db = open()) {
            db.put(b("k"), b("v"));
        }
        Options options = new Options().setReadOnly(true);
        Path path = directory.resolve("store");
        try (Kvilt db = Kvilt.open(options, path);
                Kvilt beside = Kvilt.open(options, path)) {
            assertArrayEquals(b("v"), db.get(b("k")));
            assertArrayEquals(b("v"), beside.getMany(List.of(b("k"))).get(0));
            refused(Kind.READ_ONLY, "read_only", () -> db.put(b("k"), b("w")));
            refused(Kind.READ_ONLY, "", () -> db.delete(b("k")));
            refused(Kind.READ_ONLY, "", () -> db.deleteRange(KeyRange.all()));
            refused(Kind.READ_ONLY, "", () -> db.keyspace("new"));
            refused(Kind.READ_ONLY, "", db::sync);
            try (WriteBatch batch = new WriteBatch()) {
                batch.put(b("k"), b("w"));
                refused(Kind.READ_ONLY, "", () -> db.write(batch));
            }
            refused(Kind.BUSY, "", () -> Kvilt.open(path));
        }
    }

    @Test
    void aKeyspaceOfAnotherStoreIsRefused() {
        try (Kvilt db = open();
                Kvilt other = Kvilt.open(directory.resolve("other"));
                Keyspace foreign = other.keyspace("x");
                Snapshot snapshot = db.getSnapshot();
                WriteBatch batch = new WriteBatch()) {
            batch.put(b("a"), b("1"));
            batch.put(foreign, b("k"), b("v"));
            refused(Kind.INVALID_ARGUMENT, "belongs to another store", () -> db.write(batch));
            assertNull(db.get(b("a")));
            refused(Kind.INVALID_ARGUMENT, "belongs to another store", () -> snapshot.keyspace(foreign));
        }
    }

    @Test
    void aBatchThatWasChangedWhileItWasWrittenIsRefused() {
        try (Kvilt db = open()) {
            byte[] torn = {0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 1, 2};
            refused(Kind.INVALID_ARGUMENT, "was changed while", () ->
                    Native.write(db.handle.number, torn, torn.length, new long[0]));
            refused(Kind.BUG, "Index out of bounds", () ->
                    Native.write(db.handle.number, torn, 100, new long[0]));
        }
    }

    @Test
    void aDamagedFileIsFoundAndNamed() throws IOException {
        Path path = directory.resolve("store");
        Random random = new Random(7);
        try (Kvilt db = open()) {
            for (int i = 0; i < 20_000; i++) {
                byte[] value = new byte[500];
                random.nextBytes(value);
                db.put(b("key" + i), value);
            }
        }
        Path largest;
        try (Stream<Path> files = Files.list(path)) {
            largest = files.filter(file -> file.toString().endsWith(".log") || file.toString().endsWith(".table"))
                    .max((a, b) -> Long.compare(a.toFile().length(), b.toFile().length()))
                    .orElseThrow();
        }
        try (RandomAccessFile file = new RandomAccessFile(largest.toFile(), "rw")) {
            for (long at = file.length() / 4; at < file.length() / 2; at += 1000) {
                file.seek(at);
                file.write(new byte[] {1, 2, 3, 4, 5, 6, 7, 8});
            }
        }
        try (Kvilt db = open()) {
            CheckReport report = db.check();
            assertFalse(report.isSound());
            assertTrue(report.damages().get(0).contains(largest.getFileName().toString()), report.damages()::toString);
            KviltException e = refused(Kind.CORRUPTED, largest.getFileName().toString(), () -> {
                for (int i = 0; i < 20_000; i++) {
                    db.get(b("key" + i));
                }
            });
            assertTrue(e.getMessage().contains("kvilt check"), e.getMessage());
            assertFalse(e.isRetriable());
        }
    }

    @Test
    void aFullDiskRefusesWritesAndTheyGoOnWhenThereIsSpace() throws Exception {
        Path mount = Files.createDirectory(directory.resolve("small"));
        assumeTrue(
                run("mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", mount.toString()),
                "skipped: no file system of 48 MiB can be mounted here");
        try {
            Options options = new Options().setMemoryBudget(16 << 20);
            try (Kvilt db = Kvilt.open(options, mount.resolve("store"))) {
                byte[] value = new byte[100_000];
                new Random(1).nextBytes(value);
                KviltException e = assertThrows(KviltException.class, () -> {
                    for (int i = 0; i < 2000; i++) {
                        db.put(b("key" + i), value);
                    }
                });
                assertEquals(Kind.NO_SPACE, e.kind(), e.getMessage());
                assertTrue(e.getMessage().contains("free disk space"), e.getMessage());
                assertTrue(e.isRetriable());
                assertArrayEquals(value, db.get(b("key0")));
                db.deleteRange(KeyRange.greaterThan(b("key0")));
                // While a rewrite has a part of the reserve, write buffers may need more than is left.
                untilThereIsRoom(db::sync);
                // Space comes back in the background, and puts fail until it has.
                untilThereIsRoom(() -> db.put(b("after"), value));
                assertArrayEquals(value, db.get(b("after")));
            }
        } finally {
            unmount(mount);
        }
    }

    private static void untilThereIsRoom(Runnable call) throws InterruptedException {
        long end = System.nanoTime() + Duration.ofMinutes(4).toNanos();
        while (true) {
            try {
                call.run();
                return;
            } catch (KviltException full) {
                assertEquals(Kind.NO_SPACE, full.kind(), full.getMessage());
                assertTrue(System.nanoTime() < end, full.getMessage());
                Thread.sleep(10);
            }
        }
    }

    @Test
    void aDirectoryInWhichNothingMayBeExecutedIsSaidToBeOne() throws Exception {
        Path mount = Files.createDirectory(directory.resolve("noexec"));
        assumeTrue(
                run("mount", "-t", "tmpfs", "-o", "size=48m,noexec", "tmpfs", mount.toString()),
                "skipped: no file system can be mounted here");
        // Loaded by now, so the property is for this test alone.
        Native.ensureLoaded();
        String library = System.clearProperty("kvilt.library.path");
        String before = System.setProperty("kvilt.tmpdir", mount.toString());
        try {
            UnsatisfiedLinkError e = assertThrows(UnsatisfiedLinkError.class, NativeLibrary::load);
            assertTrue(e.getMessage().contains("-Dkvilt.tmpdir"), e.getMessage());
            assertTrue(e.getMessage().contains(mount.toString()), e.getMessage());
            try (Stream<Path> files = Files.list(mount)) {
                assertEquals(0, files.count());
            }
        } finally {
            restore("kvilt.tmpdir", before);
            restore("kvilt.library.path", library);
            unmount(mount);
        }
    }

    @Test
    void aNamedLibraryServesTwoClassLoaders() throws Exception {
        String name = System.mapLibraryName("kvilt_jni");
        Path library = directory.resolve(name);
        try (InputStream own = Native.class.getResourceAsStream("native/" + NativeLibrary.target() + "/" + name)) {
            Files.copy(own, library);
        }
        URL[] classes = {Native.class.getProtectionDomain().getCodeSource().getLocation()};
        String before = System.setProperty("kvilt.library.path", library.toString());
        try (URLClassLoader one = new URLClassLoader(classes, ClassLoader.getPlatformClassLoader());
                URLClassLoader other = new URLClassLoader(classes, ClassLoader.getPlatformClassLoader())) {
            for (ClassLoader loader : List.of(one, other)) {
                Class<?> kvilt = Class.forName("io.kvilt.Kvilt", true, loader);
                assertNotSame(Kvilt.class, kvilt);
                Path store = directory.resolve("store" + loader.hashCode());
                try (AutoCloseable db = (AutoCloseable) kvilt.getMethod("open", Path.class).invoke(null, store)) {
                    kvilt.getMethod("put", byte[].class, byte[].class).invoke(db, b("a"), b("1"));
                    assertArrayEquals(b("1"), (byte[]) kvilt.getMethod("get", byte[].class).invoke(db, b("a")));
                }
            }
            System.setProperty("kvilt.library.path", directory.resolve("none.so").toString());
            UnsatisfiedLinkError e = assertThrows(UnsatisfiedLinkError.class, NativeLibrary::load);
            assertTrue(e.getMessage().contains("none.so"), e.getMessage());
            // Each call says so, and not the first one only.
            try (URLClassLoader third = new URLClassLoader(classes, ClassLoader.getPlatformClassLoader())) {
                Method open = Class.forName("io.kvilt.Kvilt", true, third).getMethod("open", Path.class);
                for (int i = 0; i < 2; i++) {
                    Throwable told = assertThrows(
                                    InvocationTargetException.class, () -> open.invoke(null, directory.resolve("x")))
                            .getCause();
                    assertInstanceOf(UnsatisfiedLinkError.class, told);
                    assertTrue(told.getMessage().contains("none.so"), told.getMessage());
                }
            }
        } finally {
            restore("kvilt.library.path", before);
        }
    }

    /**
     * Lazily: the linker keeps the first part of what it could not load, and a process that another test starts at this
     * moment has all open files of this one until it is another program.
     */
    private static void unmount(Path mount) throws InterruptedException {
        assertTrue(run("umount", "--lazy", mount.toString()));
    }

    private static void restore(String property, String value) {
        if (value == null) {
            System.clearProperty(property);
        } else {
            System.setProperty(property, value);
        }
    }

    private static boolean run(String... command) throws InterruptedException {
        try {
            return new ProcessBuilder(command).inheritIO().start().waitFor() == 0;
        } catch (IOException e) {
            return false;
        }
    }
}
