"""Counts of other hosts, which relay to this one or forward to Kafka.

Start with ``host_files`` (stored posts) and ``host_posts`` (their format), then ``host_states`` and ``hosts`` (hosts
that relay). ``kafka_hosts`` has the posts of hosts that forward to Kafka, and ``over_kafka`` their balance. Imports
``handover`` and ``ledger.posts``.
"""

__all__ = ["host_files", "host_posts", "host_states", "hosts", "kafka_hosts", "over_kafka"]
