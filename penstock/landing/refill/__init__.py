"""Landing offsets out of turn. Read ``requests``, then ``backfill``. Imports ``landing.proof``."""
