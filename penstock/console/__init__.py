"""The web console: what became of every message, at a glance. It reads only the daemon's public HTTP API."""
