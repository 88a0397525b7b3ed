"""Kafka: names, settings, clients, transactions, the registry, the embedded broker."""
