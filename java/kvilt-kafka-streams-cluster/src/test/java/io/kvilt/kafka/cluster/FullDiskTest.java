package io.kvilt.kafka.cluster;

import static io.kvilt.kafka.cluster.Cluster.STORES;
import static io.kvilt.kafka.cluster.Cluster.seconds;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import io.kvilt.kafka.cluster.Instance.Keeper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * An instance whose state is on a file system of its own, in memory, that fills up: its tasks fail with an error that
 * says so, and when a file beside the stores is removed the same process goes on, and every event counts once.
 */
class FullDiskTest {
    private static final int DISK_MEGABYTES = 64;
    private static final int BALLAST_MEGABYTES = 52;
    private static final int THREADS = 3;
    private static final int EVENTS = 20_000;

    /** All events together take more than the disk has beside the ballast, and less than it has without. */
    private static final int EVENT_BYTES = 1_000;

    /** Mounts a file system of so many megabytes at a place, fills a part of it, and goes on with a command. */
    private static final String MOUNT =
            "mount -t tmpfs -o size=\"$1\"m kvilt \"$2\""
            + " && head -c \"$3\"M /dev/zero > \"$2\"/ballast && shift 3 && exec \"$@\"";

    @TempDir
    Path directory;

    @Test
    @Timeout(value = 20, unit = TimeUnit.MINUTES)
    void a_full_disk_ends_threads_until_there_is_room() throws Exception {
        try (Cluster cluster = new Cluster(directory, 1, EVENT_BYTES)) {
            Path state = Files.createDirectories(cluster.state("first"));
            Program instance = cluster.instance("first", Keeper.KVILT, onSmallDisk(state));
            cluster.await("the instance", () -> instance.isRunning() && instance.stores().size() == STORES);
            cluster.produce(EVENTS);
            // The thread that takes its place opens the stores on a full disk, and comes to the same point.
            cluster.await("a full disk", () -> instance.told("full").size() >= THREADS);
            for (String told : instance.told("full")) {
                assertTrue(told.matches(".*Cannot (commit to|write to|open) the store \\w+ of task 0_\\d in /.*"), told);
                assertTrue(told.contains("No space left") || told.contains("the disk is full"), told);
            }
            System.out.println("measured: " + instance.told("full").get(0));

            long freed = System.nanoTime();
            // The file system is seen through the process that mounted it.
            Path root = Path.of("/proc/" + instance.process.pid() + "/root");
            Files.delete(root.resolve(state.resolve("ballast").toString().substring(1)));
            cluster.receive(EVENTS);
            System.out.println("measured: all " + EVENTS + " events " + seconds(freed) + " s after there was room; "
                    + instance.told("full").size() + " threads had ended");
            cluster.check();
            // Kafka waits for threads that ended before it gives all tasks to the one that is left.
            cluster.awaitRows(instance);
            instance.stop();
        }
    }

    /** How a program is started whose directory is a small file system, which goes when the program does. */
    private static List<String> onSmallDisk(Path place) throws IOException, InterruptedException {
        List<String> unshare = null;
        for (List<String> words : List.of(
                List.of("unshare", "--mount", "--propagation", "private"),
                List.of("unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"))) {
            if (unshare == null && canMount(words, place)) {
                unshare = words;
            }
        }
        if (unshare == null) {
            return fail("nothing can be mounted here, neither as root nor in a namespace of a user's own");
        }
        List<String> command = new ArrayList<>(unshare);
        command.addAll(List.of(
                "sh", "-c", MOUNT, "sh",
                String.valueOf(DISK_MEGABYTES), place.toString(), String.valueOf(BALLAST_MEGABYTES)));
        return command;
    }

    private static boolean canMount(List<String> unshare, Path place) throws InterruptedException {
        List<String> command = new ArrayList<>(unshare);
        command.addAll(List.of("mount", "-t", "tmpfs", "-o", "size=1m", "kvilt", place.toString()));
        try {
            return new ProcessBuilder(command).start().waitFor() == 0;
        } catch (IOException e) {
            // There is no such program here.
            return false;
        }
    }
}
