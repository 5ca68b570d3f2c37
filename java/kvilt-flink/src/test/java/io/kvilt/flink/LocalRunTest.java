package io.kvilt.flink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.InvalidProgramException;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A job without settings in one process, as it is started from an IDE. The class itself cannot be serialized. */
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class LocalRunTest {
    private final String name = getClass().getName();

    private static List<String> results(Configuration settings, KviltFunction<String, String> function)
            throws Exception {
        List<String> results = new ArrayList<>();
        try (CloseableIterator<String> found = StreamExecutionEnvironment.createLocalEnvironment(1, settings)
                .fromData("ada")
                .keyBy(user -> user)
                .transform("local", Types.STRING, new KviltOperator<>(function))
                .uid("local")
                .executeAndCollect()) {
            found.forEachRemaining(results::add);
        }
        return results;
    }

    private static List<String> budgets(Configuration settings) throws Exception {
        return results(settings, (rows, user, out) -> out.collect(Budgets.sizes().toString()));
    }

    /** Flink sets 1 TiB where nothing is set. */
    @Test
    void the_memory_budget_of_a_local_run_is_the_default() throws Exception {
        assertEquals(List.of("[" + (64 << 20) + "]"), budgets(new Configuration()));
    }

    @Test
    void the_memory_budget_of_a_local_run_can_be_set() throws Exception {
        Configuration settings = new Configuration();
        settings.setString("taskmanager.memory.task.off-heap.size", "32m");
        assertEquals(List.of("[" + (32 << 20) + "]"), budgets(settings));
    }

    @Test
    void an_anonymous_function_leaves_its_enclosing_instance_behind() throws Exception {
        String greeting = String.join(" ", "hello", "to", "");
        KviltFunction<String, String> function = new KviltFunction<>() {
            private static final long serialVersionUID = 1;

            @Override
            public void process(KeyedRows rows, String user, Collector<String> out) {
                rows.put(user.getBytes(UTF_8), user.getBytes(UTF_8));
                out.collect(greeting + user);
            }
        };
        assertEquals(List.of("hello to ada"), results(new Configuration(), function));
    }

    @Test
    void a_function_that_cannot_be_sent_is_refused_where_it_is_given() {
        KviltFunction<String, String> function = (rows, user, out) -> out.collect(user + name);
        String refused = assertThrows(InvalidProgramException.class, () -> new KviltOperator<>(function))
                .getMessage();
        assertTrue(refused.contains("not serializable"), refused);
    }
}
