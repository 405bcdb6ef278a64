"""The Java runtime of Spark and of a trial Kafka broker, and the libraries they need.

Read ``runtime`` (finds a Java: the system's or that of a wheel), then ``jars`` (libraries in the user's cache folder).
Imports ``errors`` only.
"""

__all__ = ["runtime", "jars"]  # noqa: RUF022 reading order
