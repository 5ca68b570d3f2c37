package io.kvilt.example;

import io.kvilt.example.Flights.Flight;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.IntSummaryStatistics;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * Delays by airport and hour: starts a broker and the application, loads the flights, asks itself over HTTP, compares
 * the answers with sums of the file, and stops. With {@code --serve} it stays up until Ctrl-C.
 */
public final class Delays {
    private static final int PARTITIONS = 3;
    private static final Duration PATIENCE = Duration.ofSeconds(150);
    private static final Duration STOP_MAX = Duration.ofSeconds(10);
    private static final int LOG_LINES = 20;
    private static final int WORST = 5;

    /** As words of a question. */
    private static final String EVENING = "from=2013-01-30T22:00:00Z&to=2013-01-31T03:00:00Z";

    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    private Delays() {}

    /**
     * Ends with 1 if an answer is not that of the file.
     *
     * @param arguments nothing, or {@code --serve}
     * @throws Exception if the broker or the application cannot be started
     */
    public static void main(String[] arguments) throws Exception {
        boolean isServing = List.of(arguments).equals(List.of("--serve"));
        if (arguments.length > 0 && !isServing) {
            System.err.println("usage: Delays [--serve]");
            System.exit(2);
        }
        Path directory = Files.createTempDirectory("kvilt-example-");
        List<AutoCloseable> open = new ArrayList<>();
        // Ctrl-C and every other end go this way.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(open, directory)));
        try {
            System.exit(run(directory, open, isServing) ? 0 : 1);
        } catch (Exception e) {
            e.printStackTrace();
            System.err.println("The broker's last lines:");
            List<String> lines = Files.readAllLines(directory.resolve("broker.log"));
            lines.subList(Math.max(0, lines.size() - LOG_LINES), lines.size()).forEach(System.err::println);
            System.exit(1);
        }
    }

    private static boolean run(Path directory, List<AutoCloseable> open, boolean isServing) throws Exception {
        Broker broker = opened(open, new Broker(directory));
        createTopic(broker);
        KafkaStreams streams = new KafkaStreams(
                Application.topology(), Application.settings(broker.address(), directory.resolve("state")));
        // At Ctrl-C the broker goes at the same time, and there may be nobody to take leave of.
        opened(open, () -> streams.close(STOP_MAX));
        streams.setUncaughtExceptionHandler(failure -> StreamThreadExceptionResponse.SHUTDOWN_CLIENT);
        streams.start();
        Answers answers = opened(open, new Answers(streams, 0));

        List<String> lines = Flights.lines();
        long begin = System.nanoTime();
        load(broker, lines);
        List<String> airports = lines.stream().map(line -> Flight.of(line).airport()).distinct().sorted().toList();
        List<String> found = await(answers.address(), airports, lines.size());
        double seconds = (System.nanoTime() - begin) / 1e9;
        System.out.printf("%,d flights loaded and counted in %.1f s%n", lines.size(), seconds);
        List<String> worst = show("The worst hours of the month", answers.address() + "/worst?rows=" + WORST);
        show("An evening at Newark", answers.address() + "/delays/EWR?" + EVENING);
        System.out.println();
        List<String> sums = sums(lines);
        boolean isSame = compare("hours", sums, found) & compare("worst hours", worst(sums), worst);
        if (isServing) {
            System.out.println("Serving on " + answers.address() + " until Ctrl-C");
            Thread.currentThread().join();
        }
        return isSame;
    }

    private static <T extends AutoCloseable> T opened(List<AutoCloseable> open, T one) {
        synchronized (open) {
            open.add(one);
        }
        return one;
    }

    /** The last one first, then the directory. */
    private static void stop(List<AutoCloseable> open, Path directory) {
        synchronized (open) {
            for (int i = open.size() - 1; i >= 0; i--) {
                try {
                    open.get(i).close();
                } catch (Exception e) {
                    System.err.println("It does not stop: " + e);
                }
            }
        }
        try (Stream<Path> files = Files.walk(directory)) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        } catch (IOException | UncheckedIOException e) {
            System.err.println("Cannot remove " + directory + ": " + e);
        }
    }

    private static void createTopic(Broker broker) throws InterruptedException, ExecutionException {
        Map<String, Object> settings = Map.of(
                AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, broker.address(),
                AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, (int) PATIENCE.toMillis());
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(Application.TOPIC, PARTITIONS, (short) 1))).all().get();
        }
    }

    /** Every flight is a record whose key is the airport, so all of an airport is in one partition, in order. */
    private static void load(Broker broker, List<String> lines) throws InterruptedException, ExecutionException {
        Map<String, Object> settings = Map.of(
                ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, broker.address(),
                ProducerConfig.LINGER_MS_CONFIG, 20,
                ProducerConfig.MAX_BLOCK_MS_CONFIG, (int) PATIENCE.toMillis(),
                ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, (int) PATIENCE.toMillis());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String line : lines) {
                sent.add(producer.send(new ProducerRecord<>(Application.TOPIC, Flight.of(line).airport(), line)));
            }
            producer.flush();
        }
        for (Future<RecordMetadata> flight : sent) {
            flight.get();
        }
    }

    /** What the answers should be, from the file alone: {@code airport,hour,flights,cancelled,sum,mean,longest}. */
    private static List<String> sums(List<String> lines) {
        Map<String, List<Integer>> delays = new TreeMap<>();
        for (String line : lines) {
            Flight flight = Flight.of(line);
            String hour = line.substring(line.lastIndexOf(',') + 1);
            delays.computeIfAbsent(flight.airport() + "," + hour, row -> new ArrayList<>()).add(flight.delay());
        }
        List<String> sums = new ArrayList<>();
        delays.forEach((row, all) -> {
            IntSummaryStatistics left =
                    all.stream().filter(Objects::nonNull).mapToInt(Integer::intValue).summaryStatistics();
            long cancelled = all.size() - left.getCount();
            String numbers = row + "," + all.size() + "," + cancelled + "," + left.getSum() + ",";
            sums.add(left.getCount() == 0
                    ? numbers + ","
                    : numbers + String.format(Locale.ROOT, "%.1f,%d", left.getAverage(), left.getMax()));
        });
        return sums;
    }

    /** The hours with the longest mean delay, the longest first. */
    private static List<String> worst(List<String> sums) {
        return sums.stream()
                .filter(row -> !row.endsWith(","))
                .sorted(Comparator.comparing((String row) -> -mean(row.split(","))))
                .limit(WORST)
                .toList();
    }

    private static double mean(String[] cells) {
        return Double.parseDouble(cells[4]) / (Integer.parseInt(cells[2]) - Integer.parseInt(cells[3]));
    }

    /** The rows of all airports, once they count all flights. */
    private static List<String> await(String address, List<String> airports, int flights) throws Exception {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (true) {
            List<String> rows = new ArrayList<>();
            for (String airport : airports) {
                HttpResponse<String> response = ask(address + "/delays/" + airport);
                if (response.statusCode() == 200) {
                    response.body().lines().skip(1).forEach(rows::add);
                }
            }
            long counted = rows.stream().mapToLong(row -> Long.parseLong(row.split(",")[2])).sum();
            if (counted >= flights || System.nanoTime() > end) {
                return rows;
            }
            TimeUnit.MILLISECONDS.sleep(100);
        }
    }

    /** Tells each hour whose answer is not what the file says. */
    private static boolean compare(String what, List<String> sums, List<String> answers) {
        if (sums.equals(answers)) {
            System.out.printf("All %,d %s are what the file says%n", sums.size(), what);
            return true;
        }
        tell("the file says  ", sums, answers);
        tell("the answer was ", answers, sums);
        System.out.println("The " + what + " are not what the file says");
        return false;
    }

    private static void tell(String what, List<String> rows, List<String> others) {
        Set<String> known = new HashSet<>(others);
        rows.stream().filter(row -> !known.contains(row)).forEach(row -> System.out.println(what + row));
    }

    /** Asks, and prints a table; returns its rows without the head. */
    private static List<String> show(String what, String question) throws IOException, InterruptedException {
        System.out.printf("%n%s: %s%n", what, question);
        HttpResponse<String> response = ask(question);
        if (response.statusCode() != 200) {
            throw new IOException(question + " answers " + response.statusCode() + ": " + response.body());
        }
        List<String> rows = response.body().lines().toList();
        for (String row : rows) {
            String[] cells = row.split(",", -1);
            System.out.printf("  %-9s%-22s%8s%11s%11s%12s%11s%n", (Object[]) cells);
        }
        return rows.subList(1, rows.size());
    }

    private static HttpResponse<String> ask(String question) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(question)).timeout(PATIENCE).build();
        return CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
    }
}
