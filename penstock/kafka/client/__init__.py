"""``Producer`` and ``Consumer`` with the interface of confluent-kafka, for messages of any size.

Read ``config``, ``producer``, ``consumer`` with ``consumer_state``, then what they are made of.
Imports ``kafka.large`` and ``kafka.auditing``.
"""
