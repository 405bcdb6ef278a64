"""What every process of Penstock does: it starts, dies with its parent, keeps small, and talks to people.

Read ``child`` (a process that is started again), ``rate_limited_log``, then ``small_heap`` and ``without_pandas``,
which are imported first by processes that stay small. Imports nothing of Penstock.
"""
