"""Commands that talk to listeners, or look into their log buffers: send, ctl, stress, inspect.

Read ``listeners`` (which one, and where it is), then ``send``, ``ctl``, ``stress`` with ``load``, and ``inspect``.
Imports any room before it, inside functions where that is slow or needs an extra. Beside them ``cli``.
"""

__all__ = ["listeners", "send", "ctl", "listener_commands", "stress", "load", "inspect"]  # noqa: RUF022 reading order
