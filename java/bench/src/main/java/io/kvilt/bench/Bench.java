package io.kvilt.bench;

import com.sun.management.OperatingSystemMXBean;
import io.kvilt.Engine;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.management.ManagementFactory;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * Kvilt and RocksDB in one virtual machine: get, put, batch of 100, scan of 100 rows, with one and two threads, over
 * rows that all fit into memory.
 *
 * <pre>
 * cargo xtask java --jar
 * mvn -B -q -f java/pom.xml -Pbench -DskipTests package
 * java -Xmx2g -cp 'java/bench/target/*:java/bench/target/lib/*' io.kvilt.bench.Bench [rows] [seconds] [rounds]
 * </pre>
 *
 * <p>Each work runs on every store in turn, once to warm up and then in rounds, and the median round counts: what others
 * do on the machine hits all stores alike. A turn begins when the work that the turn before left in the background has
 * ended; else flushes and merges of one store would slow down the others. A table goes to standard output; rounds go to
 * standard error, as operations a second of the turn alone and with what it left.
 */
public final class Bench {
    private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
    private static final int GROUP = 100;
    private static final long BUDGET = 1536L << 20;

    /** The process is idle while it uses less processor time than this, in nanoseconds, in {@link #LOOK_MILLIS}. */
    private static final long IDLE_NANOS = 10_000_000;

    private static final long LOOK_MILLIS = 200;

    /** Looks one after the other at which it is idle: longer together than half a second. */
    private static final int LOOKS = 4;

    private static final long IDLE_WAIT_SECONDS_MAX = 60;
    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private enum Work {
        GET("get", 1),
        PUT("put", 1),
        BATCH("batch of 100, rows", GROUP),
        SCAN("scan of 100", 1),
        SCAN_TOLD("scan of 100, told", 1);

        final String name;
        final int counts;

        Work(String name, int counts) {
            this.name = name;
            this.counts = counts;
        }
    }

    private final int rows;
    private final double seconds;
    private final int rounds;

    private Bench(int rows, double seconds, int rounds) {
        this.rows = rows;
        this.seconds = seconds;
        this.rounds = rounds;
    }

    /**
     * Measures, and prints a table.
     *
     * @param arguments rows (500,000), seconds a round (1.5), rounds (5), and which works: a part of the name
     * @throws Exception if a store fails
     */
    public static void main(String[] arguments) throws Exception {
        int rows = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 500_000;
        double seconds = arguments.length > 1 ? Double.parseDouble(arguments[1]) : 1.5;
        int rounds = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 5;
        String only = arguments.length > 3 ? arguments[3] : "";
        Bench bench = new Bench(rows, seconds, rounds);
        System.out.println("| work | value | threads | Kvilt even | Kvilt teks | RocksDB | even, teks to RocksDB | with the rest |");
        System.out.println("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
        for (int valueBytes : new int[] {100, 800}) {
            bench.measure(valueBytes, only);
        }
    }

    private void measure(int valueBytes, String only) throws Exception {
        Path place = Files.createTempDirectory("kvilt-bench");
        List<Contestant> contestants = new ArrayList<>();
        try {
            contestants.add(new Contestant.OfKvilt(Engine.EVEN, place.resolve("even"), 16 + valueBytes, BUDGET));
            contestants.add(new Contestant.OfKvilt(Engine.TEKS, place.resolve("teks"), 16 + valueBytes, BUDGET));
            contestants.add(new Contestant.OfRocksDb(place.resolve("rocksdb"), BUDGET));
            for (Contestant contestant : contestants) {
                load(contestant, valueBytes);
            }
            for (Work work : Work.values()) {
                for (int threads = 1; threads <= 2; threads++) {
                    if (work.name.contains(only)) {
                        line(contestants, work, valueBytes, threads);
                    }
                }
            }
        } finally {
            contestants.forEach(Contestant::close);
            try (Stream<Path> files = Files.walk(place)) {
                for (Path file : files.sorted((a, b) -> b.compareTo(a)).toList()) {
                    Files.delete(file);
                }
            }
        }
    }

    /** In no order, and then read once. */
    private void load(Contestant contestant, int valueBytes) throws Exception {
        long begun = System.nanoTime();
        for (int i = 0; i < rows; i++) {
            contestant.put(key(scattered(i)), value(i, valueBytes));
        }
        contestant.scan(new byte[0], rows);
        awaitIdle();
        System.err.printf("%s: loaded in %.1f s%n", contestant.name(), (System.nanoTime() - begun) / 1e9);
    }

    private void line(List<Contestant> contestants, Work work, int valueBytes, int threads) throws Exception {
        double[][] measured = new double[contestants.size()][rounds];
        double[][] withRest = new double[contestants.size()][rounds];
        for (int round = -1; round < rounds; round++) {
            for (int i = 0; i < measured.length; i++) {
                long begun = System.nanoTime();
                double rate = run(contestants.get(i), work, valueBytes, threads);
                long ran = System.nanoTime() - begun;
                long all = awaitIdle() - begun;
                if (round >= 0) {
                    measured[i][round] = rate;
                    withRest[i][round] = rate * ran / all;
                }
            }
        }
        double[] medians = new double[measured.length];
        double[] mediansWithRest = new double[measured.length];
        for (int i = 0; i < measured.length; i++) {
            System.err.printf(
                    "%s, %s: %s; %s%n",
                    contestants.get(i).name(), work.name, rates(measured[i]), rates(withRest[i]));
            medians[i] = median(measured[i]);
            mediansWithRest[i] = median(withRest[i]);
        }
        System.out.printf(
                "| %s | %d | %d | %s | %s | %s | %.1f, %.1f | %.1f, %.1f |%n",
                work.name,
                valueBytes,
                threads,
                told(medians[0]),
                told(medians[1]),
                told(medians[2]),
                medians[0] / medians[2],
                medians[1] / medians[2],
                mediansWithRest[0] / mediansWithRest[2],
                mediansWithRest[1] / mediansWithRest[2]);
        System.out.flush();
    }

    private static double median(double[] rates) {
        return Arrays.stream(rates).sorted().toArray()[rates.length / 2];
    }

    private static String rates(double[] rates) {
        return Arrays.stream(rates).mapToObj(Bench::told).toList().toString();
    }

    /**
     * Waits until stores have done nothing in the background for longer than the interval in which they sync.
     *
     * @return when they last did something
     */
    private static long awaitIdle() throws InterruptedException {
        long busy = System.nanoTime();
        long end = busy + TimeUnit.SECONDS.toNanos(IDLE_WAIT_SECONDS_MAX);
        for (int looks = 0; looks < LOOKS && System.nanoTime() < end; looks++) {
            long before = PROCESS.getProcessCpuTime();
            TimeUnit.MILLISECONDS.sleep(LOOK_MILLIS);
            if (PROCESS.getProcessCpuTime() - before > IDLE_NANOS) {
                busy = System.nanoTime();
                looks = -1;
            }
        }
        return busy;
    }

    private static String told(double rate) {
        return rate >= 10_000 ? String.format("%.0f", rate / 1000) : String.format("%.1f", rate / 1000);
    }

    /** Operations a second, all threads together. */
    private double run(Contestant contestant, Work work, int valueBytes, int threads) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            CyclicBarrier barrier = new CyclicBarrier(threads);
            List<Future<Double>> results = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                results.add(pool.submit(() -> {
                    barrier.await();
                    return loop(contestant, work, valueBytes);
                }));
            }
            double sum = 0;
            for (Future<Double> result : results) {
                sum += result.get();
            }
            return sum;
        } finally {
            pool.shutdown();
        }
    }

    private double loop(Contestant contestant, Work work, int valueBytes) throws Exception {
        SplittableRandom random = new SplittableRandom(ThreadLocalRandom.current().nextLong());
        long begun = System.nanoTime();
        long end = begun + (long) (seconds * 1e9);
        long done = 0;
        long now;
        do {
            for (int i = 0; i < (work == Work.GET || work == Work.PUT ? 64 : 1); i++) {
                one(contestant, work, valueBytes, random);
                done += work.counts;
            }
            now = System.nanoTime();
        } while (now < end);
        return done * 1e9 / (now - begun);
    }

    private void one(Contestant contestant, Work work, int valueBytes, SplittableRandom random) throws Exception {
        int row = random.nextInt(rows);
        switch (work) {
            case GET -> check(contestant.get(key(scattered(row))).length == valueBytes);
            case PUT -> contestant.put(key(scattered(row)), value(row, valueBytes));
            case BATCH -> {
                byte[][] keys = new byte[GROUP][];
                for (int i = 0; i < GROUP; i++) {
                    keys[i] = key(scattered(random.nextInt(rows)));
                }
                contestant.batch(keys, value(row, valueBytes));
            }
            case SCAN -> check(contestant.scan(key(scattered(row)), GROUP) > 0);
            case SCAN_TOLD -> check(contestant.scanTold(key(scattered(row)), GROUP) > 0);
        }
    }

    private static void check(boolean isRight) {
        if (!isRight) {
            throw new AssertionError("a row is not what was put");
        }
    }

    /** A number for each row, in no order. */
    private static long scattered(long row) {
        long x = (row + 1) * 0x9e3779b97f4a7c15L;
        return x ^ (x >>> 32);
    }

    /** 16 bytes. */
    private static byte[] key(long number) {
        byte[] key = new byte[16];
        LONG.set(key, 0, number);
        LONG.set(key, 8, Long.reverse(number));
        return key;
    }

    /** Bytes that do not compress well, made cheaply. */
    private static byte[] value(long row, int bytes) {
        byte[] value = new byte[bytes];
        long x = row * 0x2545f4914f6cdd1dL + 1;
        for (int i = 0; i + 8 <= bytes; i += 8) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            LONG.set(value, i, x);
        }
        return value;
    }
}
