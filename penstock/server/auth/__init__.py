"""Who may do what. Read ``rights`` (a token's rights on topics), ``server_tls``. Imports ``config``."""
