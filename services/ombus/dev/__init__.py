"""Brokers for developers and tests: Apache Kafka and Redis, on loopback, in a folder of their own.

Nothing here is for production: there is one machine, no password and no encryption.
"""
