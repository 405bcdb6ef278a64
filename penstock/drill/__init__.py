"""``penstock drill``: a real pipe in a temporary folder, with senders, disasters, and a verdict on every message.

Read ``run`` (the rounds of a drill), ``settings`` (the isolated copy of a configuration), ``pipe``
(its processes), ``kafka`` (its broker), ``senders``, ``disasters`` with ``faults`` (system calls and clocks that
fail inside a process; ``injected`` loads them at the start of Python, so it imports nothing here), and ``verdict``.
Imports ``config``, ``handover``, ``process``, ``supervise``, ``kafka``, ``testing``, ``client``, ``wire`` and
``counts``.
"""

__all__ = ["run", "settings", "pipe", "kafka", "senders", "disasters", "faults", "verdict"]  # noqa: RUF022 reading order
