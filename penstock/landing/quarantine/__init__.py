"""The way back into the log for rows in quarantine.

Read ``send_back``, then ``send_once`` (each row once, whatever is killed). Imports ``landing``.
"""

__all__ = ["send_back", "send_once"]
