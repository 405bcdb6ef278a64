"""Copying of topics of this host into topics of another Penstock, each entry once, through kills on both sides.

Read ``positions`` (what is stored durably), ``ranges`` (which entries make one append), then ``relay`` (the process,
and the order of its steps). ``tally`` counts by listener, ``kafka_counts`` what handlers sent to Kafka,
``registration`` posts the counts to the other side, ``clients`` connects to both sides. Imports ``process``, ``log``,
``handover``, ``ledger``, ``config``, ``files``, ``records``, ``counts``, ``errors`` and ``client.log``.
"""

__all__ = ["clients", "kafka_counts", "positions", "ranges", "registration", "relay", "tally"]
