"""Imported by receivers and the pipeline: what a round or batch frees is used again by the next one.

Else it is given back and faulted in anew, a page at a time: that was a third of a TCP receiver's time with the C
library's settings, and a twentieth of a UDP receiver's with Arrow's own allocator.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.process.allocator import KEPT, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, tune_allocator

pa.set_memory_pool(pa.system_memory_pool())
tune_allocator({M_TRIM_THRESHOLD: KEPT, M_MMAP_THRESHOLD: KEPT})
