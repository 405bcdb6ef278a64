"""What becomes of a micro-batch, and the proof that nothing of it was lost; everything that needs no pyspark.

Read ``table_layout``, ``event_rules``, ``journal`` (what was committed), ``table_files``, then ``proof/``, ``refill/``,
``promote/``, ``quarantine/`` and ``trace/``. Imports ``log``, ``kafka``, ``ledger`` and ``client``.
"""
