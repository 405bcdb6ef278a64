"""Arrow Flight: topics in whole batches. Read ``server``, ``tickets``, ``actions``. Imports ``server``."""
