package io.kvilt.flink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.kvilt.Kvilt;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** A TaskManager loads the classes of each job anew, and lets go of them when the job has ended. */
class JobClassesTest {
    private static final Path MAPPINGS = Path.of("/proc/self/maps");

    /** Limits how long something may stay that nobody uses: a minute and more where collections of garbage are slow. */
    private static final Duration LEFT_MAX = Duration.ofMinutes(4);

    @TempDir
    Path directory;

    @Test
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void a_job_that_has_ended_leaves_no_classes_and_no_library() throws Exception {
        long before = libraries();
        for (int i = 0; i < 5; i++) {
            WeakReference<ClassLoader> loader = useOnce(directory.resolve("store" + i));
            await("the classes", () -> loader.get() == null);
            await("the native library", () -> libraries() == before);
        }
    }

    /** In a thread of its own, as a task is. */
    private static WeakReference<ClassLoader> useOnce(Path store) throws Exception {
        URL classes = Kvilt.class.getProtectionDomain().getCodeSource().getLocation();
        URLClassLoader loader = new URLClassLoader(new URL[] {classes}, ClassLoader.getPlatformClassLoader());
        Throwable[] thrown = new Throwable[1];
        Thread task = new Thread(() -> {
            try {
                use(loader, store);
            } catch (Throwable e) {
                thrown[0] = e;
            }
        });
        task.start();
        task.join();
        if (thrown[0] != null) {
            throw new AssertionError("in the task", thrown[0]);
        }
        loader.close();
        return new WeakReference<>(loader);
    }

    private static void use(ClassLoader loader, Path store) throws ReflectiveOperationException {
        Class<?> environment = loader.loadClass("io.kvilt.Env");
        Class<?> options = loader.loadClass("io.kvilt.Options");
        Class<?> db = loader.loadClass("io.kvilt.Kvilt");
        Object env = environment.getConstructor(long.class).newInstance(16L << 20);
        Object settings = options.getMethod("setEnv", environment)
                .invoke(options.getConstructor().newInstance(), env);
        Object opened = db.getMethod("open", options, Path.class).invoke(null, settings, store);
        for (int i = 0; i < 5_000; i++) {
            db.getMethod("put", byte[].class, byte[].class).invoke(opened, ("key" + i).getBytes(UTF_8), new byte[200]);
        }
        // The thread's context class loader, that of the tests, has an exception of this name, too.
        InvocationTargetException refused = assertThrows(
                InvocationTargetException.class, () -> db.getMethod("get", byte[].class)
                        .invoke(opened, new byte[70_000]));
        assertSame(loader, refused.getCause().getClass().getClassLoader(), () -> String.valueOf(refused.getCause()));
        assertTrue(libraries() > 0, "the native library is not looked for by its name");
        db.getMethod("close").invoke(opened);
        environment.getMethod("close").invoke(env);
    }

    /** Mappings of native libraries of Kvilt; on a system that does not tell of them, always one. */
    private static long libraries() {
        if (!Files.exists(MAPPINGS)) {
            return 1;
        }
        try (Stream<String> lines = Files.lines(MAPPINGS)) {
            return lines.filter(line -> line.contains("kvilt-jni")).count();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Collects until it is gone. */
    private static void await(String what, BooleanSupplier isGone) throws InterruptedException {
        long end = System.nanoTime() + LEFT_MAX.toNanos();
        while (!isGone.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, () -> what + " is still there");
            System.gc();
            Thread.sleep(20);
        }
    }
}
