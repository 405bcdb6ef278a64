"""Generated parts of the documentation's site: pages from the code, and pictures of real runs.

Read ``hooks`` (called by ``mkdocs build``), the pages ``commands``, ``metrics`` and ``python_api``, then ``pictures``,
which records a terminal session (``terminal``) and the console. Imports everything that it describes.
"""

__all__ = ["commands", "hooks", "metrics", "pictures", "python_api", "terminal"]
