"""What every process of Penstock does: it starts, dies with its parent, keeps small, and reports.

Read ``child`` (a process that is started again), ``forked`` (one that shares what is loaded), ``process_end``,
``parent_death``, ``reporting``, ``boot_id``, ``allocator``, ``terminal`` (what messages may do to one), ``file_limit``,
``bytes_under_way`` (of requests), ``http_limits`` (of servers that speak it), then ``small_heap``, ``without_pandas``
and ``grpc_without_threads``, which are imported first by processes that stay small, ``warm_heap``, by those that use
memory again, ``loaded_for_good`` and ``freed_memory``. Imports ``errors`` of Penstock.
"""

__all__ = [  # noqa: RUF022 reading order
    "child",
    "forked",
    "process_end",
    "parent_death",
    "reporting",
    "boot_id",
    "allocator",
    "terminal",
    "file_limit",
    "bytes_under_way",
    "http_limits",
    "grpc_without_threads",
    "small_heap",
    "warm_heap",
    "loaded_for_good",
    "freed_memory",
    "without_pandas",
]
