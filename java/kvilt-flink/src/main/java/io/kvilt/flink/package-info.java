/**
 * A keyed operator of Flink whose rows are kept by Kvilt: for each key a sorted map of its own, from bytes to bytes,
 * with scans in both directions.
 *
 * <p>{@link io.kvilt.flink.KviltOperator} is given to {@code KeyedStream.transform} with a
 * {@link io.kvilt.flink.KviltFunction}, which reads and writes {@link io.kvilt.flink.KeyedRows}. Flink shards,
 * checkpoints, restores and rescales. Flink 2.3.
 */
package io.kvilt.flink;
