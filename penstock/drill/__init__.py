"""``penstock drill``: a real pipe in a temporary folder, with senders, disasters, and a verdict on every message.

Read ``run`` (the rounds of a drill), ``settings`` (the copy of a configuration that reaches nobody else), ``pipe``
(its processes), ``kafka`` (its broker), ``senders``, ``disasters`` with ``faults`` (what can be told to fail inside
of a process; ``injected`` loads it there, before anything else, so that nothing is imported here), and ``verdict``.
Imports ``config``, ``handover``, ``process``, ``supervise``, ``kafka``, ``testing``, ``client``, ``wire`` and
``counts``.
"""

__all__ = ["run", "settings", "pipe", "kafka", "senders", "disasters", "faults", "verdict"]  # noqa: RUF022 reading order
