"""Read-ahead cache: pages of entries that are encoded before a client asks for them, or once for several clients.

Three parts, from the largest to the smallest reader:

- ``page_cache`` keeps encoded pages of all topics and protocols, and reads the pages that follow a served page on other
  threads. ``encoded_pages`` is its use by GetLogs (gRPC and HTTP); Kafka's is ``server.kafka.pages``.
- ``stream_pages`` serves streams that follow the end of a topic: one read for all streams at the same offset, and the
  newest small batches from memory.

Invariant: a cached page is served only while a fresh read would return the same rows. A page that more rows could still
join is not cached, and a page is dropped when the topic has new gaps or is closed.

``limits`` holds every bound. Start reading there. Imports ``log``, ``server.auth``, ``server.reading``.
"""

__all__ = ["encoded_pages", "limits", "page_cache", "stream_pages"]
