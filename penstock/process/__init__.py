"""What every process of Penstock does: it starts, dies with its parent, keeps small, and reports.

Read ``child`` (a process that is started again), ``parent_death``, ``reporting``, ``boot_id``, ``allocator``,
``terminal`` (what messages may do to one), ``file_limit``, then ``small_heap`` and ``without_pandas``, which are
imported first by processes that stay small. Imports ``errors`` of Penstock.
"""

__all__ = [  # noqa: RUF022 reading order
    "child",
    "parent_death",
    "reporting",
    "boot_id",
    "allocator",
    "terminal",
    "file_limit",
    "small_heap",
    "without_pandas",
]
