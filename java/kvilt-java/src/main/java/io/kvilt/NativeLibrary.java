package io.kvilt;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * Finds the native library in the jar, copies it to a file of its own, and loads it.
 *
 * <p>A jar has a folder for each target, {@code io/kvilt/native/linux-x86_64} and so on. The system property
 * {@code kvilt.library.path} names a library to load instead; {@code kvilt.tmpdir} a directory to copy to, should the
 * usual one be mounted so that nothing in it may be executed.
 *
 * <p>Java gives a file to one class loader only. Where two have these classes, as in servers of several applications,
 * each has its own copy; a library that is named is loaded where it lies if it can be, and else copied, too.
 */
final class NativeLibrary {
    private NativeLibrary() {}

    static void load() {
        String path = System.getProperty("kvilt.library.path");
        if (path != null) {
            loadNamed(Path.of(path).toAbsolutePath());
        } else {
            loadFromJar(target());
        }
    }

    static void ensureVersion(int version) {
        if (version != Native.VERSION) {
            throw new UnsatisfiedLinkError("the native library of Kvilt speaks version " + version
                    + " of the border, and these classes " + Native.VERSION
                    + ": use classes and library of one build");
        }
    }

    private static void loadNamed(Path named) {
        try {
            System.load(named.toString());
        } catch (UnsatisfiedLinkError e) {
            // Another class loader may have the file. Whatever else it is, the copy fails likewise.
            try (InputStream library = Files.newInputStream(named)) {
                copyAndLoad(library);
            } catch (IOException | UnsatisfiedLinkError also) {
                e.addSuppressed(also);
                throw e;
            }
        }
    }

    private static void loadFromJar(String target) {
        String resource = "native/" + target + "/" + System.mapLibraryName("kvilt_jni");
        try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw new UnsatisfiedLinkError("this jar of Kvilt has no library for " + target + " (" + resource
                        + "); build it there by `cargo build --release -p kvilt-jni`,"
                        + " and name the file by -Dkvilt.library.path");
            }
            copyAndLoad(library);
        } catch (IOException e) {
            UnsatisfiedLinkError error = new UnsatisfiedLinkError(
                    "the native library of Kvilt could not be copied out of the jar: " + e
                            + "; -Dkvilt.tmpdir names another directory");
            error.initCause(e);
            throw error;
        }
    }

    private static void copyAndLoad(InputStream library) throws IOException {
        Path copy = temporary();
        try {
            Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
            loadCopy(copy);
        } finally {
            removeLoaded(copy);
        }
    }

    private static void loadCopy(Path copy) {
        try {
            System.load(copy.toString());
        } catch (UnsatisfiedLinkError e) {
            UnsatisfiedLinkError error = new UnsatisfiedLinkError(e.getMessage()
                    + "; if nothing may be executed in that directory (noexec), -Dkvilt.tmpdir names another one");
            error.initCause(e);
            throw error;
        }
    }

    private static Path temporary() throws IOException {
        String directory = System.getProperty("kvilt.tmpdir");
        String suffix = System.mapLibraryName("");
        return directory == null
                ? Files.createTempFile("kvilt-jni", suffix)
                : Files.createTempFile(Path.of(directory), "kvilt-jni", suffix);
    }

    /** The system keeps what is mapped, so nothing is left behind; where it does not, the file goes at the end. */
    private static void removeLoaded(Path copy) {
        try {
            Files.deleteIfExists(copy);
        } catch (IOException e) {
            copy.toFile().deleteOnExit();
        }
    }

    /** System and processor, as folders of the jar are called. */
    static String target() {
        return target(System.getProperty("os.name"), System.getProperty("os.arch"));
    }

    static String target(String system, String processor) {
        String name = system.toLowerCase(Locale.ROOT);
        String os = name.startsWith("linux")
                ? "linux"
                : name.startsWith("mac") || name.startsWith("darwin")
                        ? "macos"
                        : name.startsWith("windows") ? "windows" : name.replace(' ', '-');
        String arch =
                switch (processor.toLowerCase(Locale.ROOT)) {
                    case "amd64", "x86_64", "x64" -> "x86_64";
                    case "aarch64", "arm64" -> "aarch64";
                    default -> processor.toLowerCase(Locale.ROOT);
                };
        return os + "-" + arch;
    }
}
