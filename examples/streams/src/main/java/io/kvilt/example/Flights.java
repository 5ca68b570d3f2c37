package io.kvilt.example;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.zip.GZIPInputStream;

/** The flights that left New York in January 2013, as lines of CSV, and what a line says. */
final class Flights {
    private static final String FILE = "/flights-2013-01.csv.gz";
    private static final String COLUMNS = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,"
            + "arr_delay,carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour";
    private static final int DELAY = column("dep_delay");
    private static final int ORIGIN = column("origin");
    private static final int MINUTE = column("minute");
    private static final int HOUR = column("time_hour");

    /** Stands for no number, in the file. */
    static final String NONE = "NA";

    private Flights() {}

    /**
     * One flight.
     *
     * @param airport where it leaves
     * @param time when it should leave, in milliseconds since 1970
     * @param delay minutes behind that time, less than zero for early ones; null if it never left
     */
    record Flight(String airport, long time, Integer delay) {
        /** Reads a line of the file. */
        static Flight of(String line) {
            String[] cells = line.split(",", -1);
            long hour = Instant.parse(cells[HOUR]).toEpochMilli();
            String delay = cells[DELAY];
            return new Flight(
                    cells[ORIGIN],
                    hour + Long.parseLong(cells[MINUTE]) * 60_000,
                    delay.equals(NONE) ? null : Integer.valueOf(delay));
        }
    }

    /** All lines, in the order of the file, without the first one, which names the columns. */
    static List<String> lines() throws IOException {
        try (InputStream file = Flights.class.getResourceAsStream(FILE);
                BufferedReader lines = new BufferedReader(
                        new InputStreamReader(new GZIPInputStream(file), StandardCharsets.UTF_8))) {
            String head = lines.readLine();
            if (!COLUMNS.equals(head)) {
                throw new IOException(FILE + " has other columns: " + head);
            }
            List<String> flights = new ArrayList<>();
            lines.lines().forEach(flights::add);
            return flights;
        }
    }

    private static int column(String name) {
        return Arrays.asList(COLUMNS.split(",")).indexOf(name);
    }
}
