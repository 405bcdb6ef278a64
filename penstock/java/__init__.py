"""The Java that Spark and a trial Kafka broker run on, and the libraries they need.

Read ``runtime`` (which Java, the machine's or a wheel's), then ``jars`` (what is fetched once into the user's cache).
Imports ``errors`` alone.
"""

__all__ = ["runtime", "jars"]  # noqa: RUF022 reading order
