package io.kvilt.flink;

import io.kvilt.Durability;
import io.kvilt.Engine;
import io.kvilt.Env;
import io.kvilt.Kvilt;
import io.kvilt.Options;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The store of one subtask, in a directory that is made for it and removed with it. What lasts is in Flink's
 * checkpoints, so a store is never opened a second time.
 */
final class Store implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Store.class);

    /** Nothing is read again after a crash, so the engine's own checkpoints only have to let old files go. */
    private static final Duration CHECKPOINT_INTERVAL = Duration.ofSeconds(10);

    final Kvilt db;
    private final Path directory;
    private final long budget;

    /** In a new directory below {@code parent}, whose name begins with {@code name}. */
    Store(File parent, String name, long budget, Engine engine) throws IOException {
        this.budget = budget;
        Env env = Budgets.acquire(budget);
        directory = directory(parent, name, budget);
        Kvilt opened = null;
        try {
            Options options = new Options().setEnv(env).setDurability(Durability.async(CHECKPOINT_INTERVAL));
            if (engine != null) {
                options.setEngine(engine);
            }
            opened = Kvilt.open(options, directory);
        } finally {
            if (opened == null) {
                remove();
            }
        }
        db = opened;
        LOG.info("A store is in {}; all with a budget of {} bytes share it.", directory, budget);
    }

    private static Path directory(File parent, String name, long budget) throws IOException {
        Path made = null;
        try {
            Files.createDirectories(parent.toPath());
            made = Files.createTempDirectory(parent.toPath(), name);
            return made;
        } finally {
            if (made == null) {
                Budgets.release(budget);
            }
        }
    }

    /** Throws nothing: no row is needed any more, and what goes wrong is in the log. */
    @Override
    public void close() {
        try {
            db.close();
        } catch (RuntimeException e) {
            LOG.warn("The store in {} did not close well; it is removed.", directory, e);
        } finally {
            remove();
        }
    }

    private void remove() {
        Budgets.release(budget);
        try (Stream<Path> files = Files.walk(directory)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        } catch (IOException | UncheckedIOException e) {
            LOG.warn("The directory {} is not needed any more, and could not be removed.", directory, e);
        }
    }
}
