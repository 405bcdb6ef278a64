"""Serve one client connection of Kafka's protocol: frames, requests and answers in order, SASL.

Read ``frames``, ``connection`` with ``answers``, then ``requests`` (a fast path of parsing) and ``sasl``. Imports
``process``, ``slogd`` and ``server``.
"""

__all__ = ["answers", "connection", "frames", "requests", "sasl"]
