"""Reads the frames that a lagging reader is about to miss, and counts their messages.

Invariant: the counts that one frame carries and the next one repeats are entered once, also if one of both is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.counts import Counts, Name, by_bucket, prefix_with_bucket, summed
from penstock.handover.buffer import HandlerPosition
from penstock.handover.dropped_frames import LostCounts
from penstock.handover.frames.frame import intact_metadata
from penstock.handover.frames.frame_metadata import FrameMetadata
from penstock.handover.paths import LOG
from penstock.handover.positions.accounts import CORRUPT, DROPPED
from penstock.handover.positions.position import UNKNOWN
from penstock.logbuffer import Frame, Subscription


def poll_with_repeated(subscription: Subscription, limit_bytes: int) -> list[Frame]:
    """Return frames, among them each that repeats the counts of another one. Raises Lapped."""
    frames = subscription.poll(limit_bytes)
    while frames and (last := intact_metadata(frames[-1])) and last.floor and not last.repeated:
        before, following = subscription.position, subscription.poll(limit_frames=1)
        if subscription.position == before:
            break
        frames += following  # none at the end of a term
    return frames


class MissedCounts(NamedTuple):
    """Counts of missed frames, named by bucket, and the total after them; ``lost`` is a part of the log's."""

    counts: Counts
    mark: int
    lost: list[LostCounts]


def missed_counts(
    frames: Iterable[Frame],
    reader: HandlerPosition,
    before: int | None = None,
    is_damaged: Callable[[int, int], bool] = lambda begin, end: False,
) -> MissedCounts:
    """Return the counts of frames that ``reader`` misses.

    ``before`` is the total before them if the reader is further than its stored position. Messages of unreadable frames
    show in the total of the next readable frame, and are corrupt. ``is_damaged`` reports whether the frame between two
    positions is unreadable: the next one has the counts that it carries.
    """
    lost_counts: list[LostCounts] = []
    counts, mark = Counts(), reader.mark if before is None else before
    for frame in frames:
        metadata = intact_metadata(frame)
        if metadata is None:
            continue
        accepted = metadata.origin.counts.get(Name.ACCEPTED, 0)
        lost = max(metadata.total - accepted - mark, 0) if mark != UNKNOWN else 0
        mark = metadata.total
        if reader.name == LOG:
            counts.absorb(_counts_for_log(metadata, accepted, lost, reader))
            lost_counts += metadata.lost_counts
            if metadata.repeated and is_damaged(metadata.repeated[0].carriers[0].begin, frame.begin):
                counts.absorb(summed(repeated for _, repeated in metadata.repeated))
                lost_counts += [LostCounts(carriers[1:], repeated) for carriers, repeated in metadata.repeated]
        else:
            counts.absorb(prefix_with_bucket(metadata.origin.bucket, {DROPPED: accepted, CORRUPT: lost}))
    return MissedCounts(counts, mark, lost_counts)


def _counts_for_log(metadata: FrameMetadata, accepted: int, lost: int, reader: HandlerPosition) -> dict[str, int]:
    """Return the counts that the log misses: it enters the listener's own counts, so these are included."""
    named_counts: dict[str, int] = {}
    for bucket, counts in by_bucket(metadata.origin.bucket, metadata.origin.counts).items():
        if bucket == metadata.origin.bucket:
            # Only the frame's own messages: counts of earlier missed frames, which it carries, are dropped already.
            counts[f"{Name.POLICY_DROP}{LOG}" if reader.routed else f"{Name.NOT_ROUTED}{LOG}"] += accepted
            counts.absorb({Name.SEEN: lost, Name.ACCEPTED: lost, Name.CORRUPT: lost})
        named_counts.update(prefix_with_bucket(bucket, counts))
    return named_counts
