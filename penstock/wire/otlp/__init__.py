"""OTLP's logs without I/O: requests in protobuf or JSON to messages with annotations, by columns.

Read ``values`` (attributes as texts), ``records`` (requests to messages), ``few_records`` (small requests),
``json_requests``, then ``protocol`` (answers to senders). Imports ``wire``, ``records``, ``counts`` and ``errors``.
"""

__all__ = [  # noqa: RUF022 reading order
    "values",
    "records",
    "few_records",
    "json_requests",
    "protocol",
]
