"""The proof of a committed micro-batch: every offset is a row, a duplicate, or in a gap.

Read ``prover`` (who decides what is a duplicate and what is lost), ``evidence``, ``reread`` with ``reread_flight`` and
``reread_kafka``, ``uuid_sums``, ``ledger_posts``. Imports ``landing`` beside this folder, ``log``, ``ledger``.
"""
