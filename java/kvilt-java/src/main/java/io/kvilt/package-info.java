/**
 * Kvilt: an embedded, ordered key-value store, for Java.
 *
 * <p>A store is a sorted map from bytes to bytes in a directory. {@link io.kvilt.Kvilt#open(String)} opens one:
 *
 * <pre>{@code
 * try (Kvilt db = Kvilt.open("events")) {
 *     db.put("app42/09:15/user7".getBytes(), "opened".getBytes());
 *     try (KviltIterator rows = db.scan(KeyRange.prefix("app42/".getBytes()))) {
 *         for (; rows.isValid(); rows.next()) {
 *             System.out.println(new String(rows.key()) + " = " + new String(rows.value()));
 *         }
 *     }
 * }
 * }</pre>
 *
 * <p><b>Threads.</b> A {@link io.kvilt.Kvilt}, {@link io.kvilt.Keyspace}, {@link io.kvilt.Snapshot} or
 * {@link io.kvilt.Env} may be used by any number of threads at once. A {@link io.kvilt.KviltIterator},
 * {@link io.kvilt.WriteBatch} or {@link io.kvilt.Options} belongs to one thread at a time.
 *
 * <p><b>Closing.</b> Everything that has something on the native side is {@link AutoCloseable}. It may be closed at any
 * time and by any thread, also while others use it: calls that run end, with a result or an exception, and every later
 * one throws {@link IllegalStateException}. Closing a {@link io.kvilt.Kvilt} closes all that was opened from it, and
 * when it returns, the directory can be opened again. What nobody closed is closed when nothing refers to it any more,
 * and told of in the log, by {@link System.Logger} {@code io.kvilt}.
 *
 * <p><b>Errors.</b> {@link io.kvilt.KviltException} has a {@link io.kvilt.KviltException.Kind}, and the engine's whole
 * text. A null argument is a {@link NullPointerException}.
 */
package io.kvilt;
