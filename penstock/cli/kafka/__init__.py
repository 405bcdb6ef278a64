"""Commands on Kafka: kafka, promote.

Read ``broker`` (all of ``penstock kafka``), ``files``, ``promote``. Imports any room before it, inside functions where
that is slow or needs an extra. Also ``cli``.
"""

__all__ = ["broker", "files", "promote"]
