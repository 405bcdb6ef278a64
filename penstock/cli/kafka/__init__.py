"""Commands that have to do with Kafka: kafka, promote.

Read ``broker`` (all of ``penstock kafka``), ``files``, ``promote``. Imports ``kafka``, ``landing`` and ``spark`` inside
functions only: they need extras.
"""

__all__ = ["broker", "files", "promote"]
