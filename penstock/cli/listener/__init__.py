"""Commands on listeners and their log buffers: send, ctl, stress, inspect.

Read ``listeners`` (listeners by name, and commands to them), then ``send``, ``ctl``, ``stress`` with ``load``, and
``inspect``. Imports any room before it, inside functions if that is slow or needs an extra. Also ``cli``.
"""

__all__ = ["listeners", "send", "ctl", "stress", "load", "inspect"]  # noqa: RUF022 reading order
