"""HTTP protocols without I/O: a request's body becomes messages, and the answer its sender expects.

Start with ``json_documents`` (Penstock's simple protocol); ``hec`` is Splunk's HTTP Event Collector, ``bulk``
Elasticsearch's bulk API, ``loki`` Loki's push API.
Imports ``wire.json_text``, ``wire.message_ids``, ``wire.protobuf``, ``wire.requests``, ``wire.sender_text``,
``wire.unpacking``, ``records`` and ``counts``.
"""

__all__ = [  # noqa: RUF022 reading order
    "json_documents",
    "hec",
    "bulk",
    "loki",
]
