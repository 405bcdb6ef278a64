"""Sizes of frames."""

from __future__ import annotations

import pytest

from penstock.config import ListenerConfig, load
from penstock.handover.frames.frame_size import frame_length, min_frame_length


def test_default_frame_fits_the_default_listeners() -> None:
    settings = load(environment={})
    assert all(
        min_frame_length(listener) <= frame_length(settings.buffer.term_length) for listener in settings.listener
    )


@pytest.mark.parametrize(("codec", "fits"), [("plog", False), ("syslog", True), ("raw", True)])
def test_only_defragmenting_listeners_need_room_for_the_largest_message(codec: str, fits: bool) -> None:
    arguments = {"name": "a", "protocol": "udp", "codec": codec, "defrag": {"max_size": "64MiB"}}
    assert (min_frame_length(ListenerConfig.model_validate(arguments)) <= frame_length(2 << 20)) is fits
