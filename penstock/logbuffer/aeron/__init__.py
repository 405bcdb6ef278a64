"""Features that only compatibility with Aeron needs; no process of Penstock calls them.

Read ``publication`` (all offers and Aeron's cleaning) with ``appender``, ``blocks`` and ``claims``; then ``images``
(to follow any buffer), ``fragments`` and ``readers``; last ``inspector`` (LogInspector's text, and JSON), which
``penstock inspect`` shows. Imports ``logbuffer`` and ``records``.
"""

from penstock.logbuffer.aeron.blocks import Block
from penstock.logbuffer.aeron.claims import Claim
from penstock.logbuffer.aeron.fragments import FragmentAssembler
from penstock.logbuffer.aeron.images import Image
from penstock.logbuffer.aeron.publication import Cleaning, ExclusivePublication
from penstock.logbuffer.aeron.readers import Readers

__all__ = ["Block", "Claim", "Cleaning", "ExclusivePublication", "FragmentAssembler", "Image", "Readers"]
