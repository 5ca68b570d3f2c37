package io.kvilt.kafka;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A file that says that a store's files cannot be trusted: the next open makes the store anew.
 *
 * <p>It has the name of the store, in a folder of notes. Beside the stores it could be the name of another store.
 */
final class DamageNote {
    /** In the state directory of a task. */
    static final String DIRECTORY = "kvilt.damaged";

    private final Path path;

    DamageNote(File stateDirectory, String store) {
        path = stateDirectory.toPath().resolve(DIRECTORY).resolve(store);
    }

    boolean exists() {
        return Files.exists(path);
    }

    void write(String what) throws IOException {
        Files.createDirectories(path.getParent());
        Files.write(path, what.getBytes(StandardCharsets.UTF_8));
    }

    /** Removes it. The folder stays, as another thread may be about to write a note there. */
    void remove() throws IOException {
        Files.delete(path);
    }

    @Override
    public String toString() {
        return path.toString();
    }
}
