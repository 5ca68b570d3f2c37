/**
 * State stores of Kafka Streams, kept by Kvilt in the place of RocksDB.
 *
 * <p>{@link io.kvilt.kafka.KviltDslStoreSuppliers} puts a whole topology on Kvilt, {@link io.kvilt.kafka.KviltStores}
 * one store; {@link io.kvilt.kafka.KviltConfig} has the settings. Kafka 3.9 and newer.
 */
package io.kvilt.kafka;
