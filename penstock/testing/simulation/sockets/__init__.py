"""A simulated network and kernel: the real receivers read datagrams and connections whose faults a seed draws.

Read ``run`` (``simulate_sockets``), ``faults``, ``kernel`` and ``streams`` (sockets), ``replacements``, ``listeners``
(lives of real receivers), ``senders`` and ``stream_senders``, then ``recount`` and ``promises`` (what is checked).
Imports ``testing.crashes``, ``testing.simulation`` and any room before it.
"""

__all__ = [  # noqa: RUF022 reading order
    "run",
    "faults",
    "kernel",
    "streams",
    "replacements",
    "listeners",
    "senders",
    "stream_senders",
    "recount",
    "promises",
]
