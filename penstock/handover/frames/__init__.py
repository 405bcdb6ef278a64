"""Frames, the unit of the handover: a batch, the metadata that travels with it, and its size.

Read ``frame``, ``frame_metadata`` and ``frame_size``. Imports ``config``, ``handover.dropped_frames``, ``log``,
``logbuffer`` and ``wire``.
"""

__all__ = ["frame", "frame_metadata", "frame_size"]
