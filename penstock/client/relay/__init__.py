"""Copying of topics of this host into topics of another Penstock, each entry once, through kills on both sides.

Read ``positions`` (what is stored durably), ``ranges`` (which entries make one append), then ``relay`` (the process,
and the order of its steps). Imports ``process``, ``log``, ``config``, ``records``, ``counts``, ``errors`` and
``client.log``.
"""

__all__ = ["positions", "ranges", "relay"]
