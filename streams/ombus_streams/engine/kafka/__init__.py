"""The Kafka engine: entries on Kafka, membership by Faust, rows in RocksDB.

Nothing else in the project imports Faust, aiokafka or rocksdict: the extra ``kafka``.
"""
