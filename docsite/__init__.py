"""What makes the documentation's site of ``docs/``: pages from the code, and pictures of real runs.

Read ``hooks`` (what ``mkdocs build`` calls), the pages ``commands``, ``metrics`` and ``python_api``, then ``pictures``,
which records a terminal session (``terminal``) and the console. Imports whatever it describes.
"""

__all__ = ["commands", "hooks", "metrics", "pictures", "python_api", "terminal"]
