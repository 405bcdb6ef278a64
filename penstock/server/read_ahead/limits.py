"""Limits of the read-ahead cache: together they bound its memory, independent of requests.

At most: ``CACHE_BYTES`` of pages, and for each topic that is followed ``MAX_NEWEST_BATCHES`` of
``MAX_NEWEST_BATCH_BYTES`` (1 MiB), and ``MAX_STREAM_PAGES`` of ``MAX_STREAM_PAGE_BYTES`` (16 MiB) for streams. Pages
that are being read come on top: ``MAX_READS_AHEAD`` reads of up to ``PAGES_PER_READ`` pages.
"""

CACHE_BYTES = 32 << 20
"""Bytes of cached pages, of all topics and protocols together."""
MAX_CACHED_PAGES = 64
"""Number of cached pages, of all topics and protocols together."""
MIN_PAGE_BYTES = 64 << 10
"""Smallest page that is cached and read ahead of; smaller pages are cheap to read."""
MAX_PAGE_BYTES = CACHE_BYTES // 2
"""Largest page that is cached, so that a client of large pages leaves room for others."""
IDLE_TIMEOUT_S = 5.0
"""The cache is emptied when no page was served for this long, at the latest after twice this time."""

MAX_READS_AHEAD = 4
"""Reads of pages that no client has asked for yet, at once: half of the reader threads, so that requests find one."""
PAGES_AHEAD = 2
"""Pages read behind a served page: while a client receives one, the other is encoded."""
PAGES_PER_READ = 4
"""Pages of a GetLogs client that one read encodes, if that many fit into the default size of a page."""

MAX_STREAM_PAGES = 16
"""Pages shared by streams at the same offset."""
MAX_STREAM_PAGE_BYTES = 1 << 20
"""Largest page kept for other streams; larger pages come from a single stream that catches up."""

MAX_NEWEST_BATCHES = 64
"""Newest batches kept of each followed topic."""
MAX_NEWEST_BATCH_BYTES = 16 << 10
"""Largest of them: for larger batches reading the files costs little per entry."""
