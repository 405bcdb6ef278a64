"""``penstock balance``: what became of every message, and the same computed anew."""
