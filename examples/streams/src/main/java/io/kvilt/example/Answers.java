package io.kvilt.example;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * Answers over HTTP, as CSV, by interactive queries of the store. Any thread of the server may run it.
 *
 * <p>One instance has all partitions here. Where there are several, {@code KafkaStreams.queryMetadataForKey} says which
 * one has an airport, and the instance that was asked passes the question on.
 */
final class Answers implements AutoCloseable {
    private static final String HEAD = "airport,hour,flights,cancelled,delay_sum,delay_mean,delay_max\n";

    private static final int ROWS_DEFAULT = 10;

    private final KafkaStreams streams;
    private final HttpServer server;

    /** A row of the store. */
    private record Hour(String airport, Instant begin, Delay delay) {
        String line() {
            boolean hasLeft = delay.flights() > delay.cancelled();
            return String.join(
                            ",",
                            airport,
                            begin.toString(),
                            String.valueOf(delay.flights()),
                            String.valueOf(delay.cancelled()),
                            String.valueOf(delay.sum()),
                            hasLeft ? String.format(Locale.ROOT, "%.1f", delay.mean()) : "",
                            hasLeft ? String.valueOf(delay.max()) : "")
                    + "\n";
        }
    }

    /** Listens on loopback; port 0 takes a free one. */
    Answers(KafkaStreams streams, int port) throws IOException {
        this.streams = streams;
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
        server.createContext("/delays/", exchange -> answer(exchange, this::delays));
        server.createContext("/worst", exchange -> answer(exchange, this::worst));
        server.start();
    }

    String address() {
        return "http://localhost:" + server.getAddress().getPort();
    }

    /** {@code /delays/EWR?from=2013-01-15T00:00:00Z&to=...}: an airport's hours, in order. One key: one range. */
    private List<Hour> delays(HttpExchange exchange) {
        String airport = exchange.getRequestURI().getPath().substring("/delays/".length());
        Map<String, String> words = words(exchange);
        List<Hour> hours = new ArrayList<>();
        try (WindowStoreIterator<Delay> rows = store().fetch(airport, time(words, "from"), time(words, "to"))) {
            while (rows.hasNext()) {
                KeyValue<Long, Delay> row = rows.next();
                hours.add(new Hour(airport, Instant.ofEpochMilli(row.key), row.value));
            }
        }
        return hours;
    }

    /** {@code /worst?hour=...&rows=3}: of one hour, or of all, the ones with the longest mean delay. */
    private List<Hour> worst(HttpExchange exchange) {
        Map<String, String> words = words(exchange);
        boolean isOne = words.containsKey("hour");
        Instant from = time(words, isOne ? "hour" : "from");
        Instant to = isOne ? from : time(words, "to");
        int rowsMax = words.containsKey("rows") ? Integer.parseInt(words.get("rows")) : ROWS_DEFAULT;
        List<Hour> hours = new ArrayList<>();
        try (KeyValueIterator<Windowed<String>, Delay> rows = store().fetchAll(from, to)) {
            while (rows.hasNext()) {
                KeyValue<Windowed<String>, Delay> row = rows.next();
                if (row.value.flights() > row.value.cancelled()) {
                    hours.add(new Hour(row.key.key(), row.key.window().startTime(), row.value));
                }
            }
        }
        hours.sort(Comparator.comparing((Hour hour) -> hour.delay.mean()).reversed());
        return hours.subList(0, Math.max(0, Math.min(rowsMax, hours.size())));
    }

    private ReadOnlyWindowStore<String, Delay> store() {
        return streams.store(
                StoreQueryParameters.fromNameAndType(Application.STORE, QueryableStoreTypes.windowStore()));
    }

    private static Map<String, String> words(HttpExchange exchange) {
        Map<String, String> words = new HashMap<>();
        String query = exchange.getRequestURI().getRawQuery();
        for (String word : query == null ? new String[0] : query.split("&")) {
            int equals = word.indexOf('=');
            if (equals > 0) {
                String value = URLDecoder.decode(word.substring(equals + 1), StandardCharsets.UTF_8);
                words.put(word.substring(0, equals), value);
            }
        }
        return words;
    }

    /** January, where nothing is said. */
    private static Instant time(Map<String, String> words, String name) {
        String otherwise = name.equals("to") ? "2013-02-02T00:00:00Z" : "2013-01-01T00:00:00Z";
        return Instant.parse(words.getOrDefault(name, otherwise));
    }

    private static void answer(HttpExchange exchange, Function<HttpExchange, List<Hour>> question) throws IOException {
        int status = 200;
        StringBuilder text = new StringBuilder(HEAD);
        try {
            question.apply(exchange).forEach(hour -> text.append(hour.line()));
        } catch (InvalidStateStoreException e) {
            // It is being restored, or on its way to another instance.
            status = 503;
            text.replace(0, text.length(), e.getMessage() + "\n");
        } catch (DateTimeException | IllegalArgumentException e) {
            status = 400;
            text.replace(0, text.length(), e.getMessage() + "\n");
        } catch (RuntimeException e) {
            status = 500;
            text.replace(0, text.length(), e + "\n");
        }
        byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
        try (exchange) {
            exchange.getResponseHeaders().set("Content-Type", "text/csv; charset=utf-8");
            exchange.sendResponseHeaders(status, bytes.length);
            exchange.getResponseBody().write(bytes);
        }
    }

    @Override
    public void close() {
        server.stop(0);
    }
}
