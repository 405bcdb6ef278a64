"""Commands that talk to listeners, or look into their log buffers: send, ctl, stress, inspect.

Read ``listeners`` (which one, and where it is), then ``send``, ``ctl``, ``stress`` with ``load``, and ``inspect``.
Imports ``client``, ``config``, ``handover``, ``logbuffer`` and, for where listeners are, ``supervise``.
"""

__all__ = ["listeners", "send", "ctl", "listener_commands", "stress", "load", "inspect"]  # noqa: RUF022 reading order
