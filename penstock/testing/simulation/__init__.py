"""A deterministic simulation of the pipe in one thread: a seed is a run, and a run ends with checks of every promise.

Read ``run`` (``simulate``) with ``stepped_run``, ``outcome``, ``faults``, ``machine`` (time, disk, kills), the
processes ``daemon``, ``receiver``, ``senders`` and ``readers``, ``promises`` (what is checked), then ``shrink``;
``forwarding`` and ``groups``, runs with forwarders and with consumers; and ``landing`` and ``sockets``, runs of their
own. ``python -m penstock.testing.simulation`` runs many seeds. Imports ``testing.crashes`` and any room before it.
"""

from __future__ import annotations

from penstock.testing.simulation.outcome import Outcome
from penstock.testing.simulation.run import simulate

__all__ = ["Outcome", "simulate"]
