"""The page of quarantined messages: marked faults and links to states."""

from __future__ import annotations

import pytest

from penstock.console.pages.quarantine import PREVIEW_BYTES, marked_payload, state_links
from penstock.landing.rows.payload_fault import find_fault
from penstock.sql.quarantine_states import State
from penstock.sql.quarantined import Selection


@pytest.mark.parametrize(
    ("reason", "payload", "html"),
    [
        ("bad_json", b'{"a":<,}', '{&quot;a&quot;:<mark class="bad">&lt;</mark>,}'),
        ("bad_json", b'{"a":1', '{&quot;a&quot;:1<mark class="bad">&#9251;</mark>'),
        ("missing_uuid", b'{"type":"x"}', "{&quot;type&quot;:&quot;x&quot;}"),
        ("bad_json", b'{"\xff"}', '{&quot;<mark class="bad">\ufffd</mark>&quot;}'),
    ],
)
def test_fault_is_marked_in_the_payload(reason: str, payload: bytes, html: str) -> None:
    assert marked_payload(payload, find_fault(reason, payload)) == html


def test_part_around_a_late_fault_is_shown() -> None:
    payload = b'{"a":"' + b"x" * 1000 + b'",}' + b"y" * 500
    html = marked_payload(payload, find_fault("bad_json", payload))
    assert html.startswith("...x")
    assert html.endswith("y...")
    assert ',<mark class="bad">}</mark>y' in html
    assert len(html) < 3 * PREVIEW_BYTES


def test_links_keep_the_selection() -> None:
    html = state_links(Selection(reason="bad_json"), State.RESOLVED)
    assert "<b>resolved</b>" in html
    assert 'href="/quarantine?reason=bad_json">open' in html
    assert 'href="/quarantine?reason=bad_json&amp;state=sent_back">sent back' in html
