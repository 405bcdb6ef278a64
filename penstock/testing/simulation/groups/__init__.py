"""Runs with groups of Kafka's protocol: the daemon's real handlers on a virtual event loop, and members that fail.

Read ``run`` (``simulate_groups``), ``event_loop`` (the daemon's loop and its threads), ``server`` (requests as bytes),
``members``, ``administrators``, ``promises`` (what is checked), and ``producers``, a run with producers as well, whose
``connections`` have a ``transport`` without sockets.
Imports ``testing.simulation``, ``testing.crashes`` and any room before it.
"""

__all__ = [
    "administrators",
    "connections",
    "event_loop",
    "members",
    "producers",
    "promises",
    "run",
    "server",
    "transport",
]
