package io.kvilt.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A job without settings in one process, as it is started from an IDE. */
@Timeout(120)
class LocalRunTest {
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
}
