"""The way back for rows in quarantine. Read ``send_back``, then ``send_once``. Imports ``landing``."""
