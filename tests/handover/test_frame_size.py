"""How large frames may be, and must be able to be."""

from __future__ import annotations

import pytest

from penstock.config import ListenerConfig, load
from penstock.handover.frame_size import frame_length, least_frame


def test_the_default_frame_holds_what_the_default_listeners_may_need() -> None:
    settings = load(environment={})
    assert all(least_frame(listener) <= frame_length(settings.buffer.term_length) for listener in settings.listener)


@pytest.mark.parametrize(("codec", "fits"), [("plog", False), ("syslog", True), ("raw", True)])
def test_only_where_fragments_are_put_together_a_frame_holds_the_largest_message(codec: str, fits: bool) -> None:
    given = {"name": "a", "protocol": "udp", "codec": codec, "defrag": {"max_size": "64MiB"}}
    assert (least_frame(ListenerConfig.model_validate(given)) <= frame_length(2 << 20)) is fits
