"""The log daemon's reader: frames of each log buffer become batches of topics.

Read ``drain`` with ``splitter`` and ``topic_requests``, then ``listener_drains``. Imports ``handover``, ``log``,
``logbuffer`` and ``wire``.
"""

__all__ = ["drain", "splitter", "topic_requests", "listener_drains"]  # noqa: RUF022 reading order
