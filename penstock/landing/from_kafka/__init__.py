"""Kafka's records as rows of the landing. Read ``rows``, then ``read_back``. Imports ``kafka``."""
