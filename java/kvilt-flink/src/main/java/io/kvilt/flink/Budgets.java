package io.kvilt.flink;

import io.kvilt.Env;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/** Memory budgets that the operators of a TaskManager share, by their size. Any thread may use it. */
final class Budgets {
    private static final Map<Long, Budget> OPEN = new HashMap<>();

    private static final class Budget {
        final Env env;
        int stores;

        Budget(long bytes) {
            env = new Env(bytes);
        }
    }

    private Budgets() {}

    /** For one more store. */
    static synchronized Env acquire(long bytes) {
        Budget budget = OPEN.computeIfAbsent(bytes, Budget::new);
        budget.stores++;
        return budget.env;
    }

    /** One store less; what no store uses is closed. */
    static synchronized void release(long bytes) {
        Budget budget = OPEN.get(bytes);
        if (budget != null && --budget.stores == 0) {
            OPEN.remove(bytes);
            budget.env.close();
        }
    }

    /** Sizes of the budgets that stores use now. */
    static synchronized Set<Long> sizes() {
        return Set.copyOf(OPEN.keySet());
    }
}
