"""The receipt in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.counts import LOST, Counts
from penstock.ledger.receipt import PARTS, Receipt
from penstock.ledger.receipt_words import bar, reason, reasons, sentence, share, unknown, verdict


def told(unreported: list[str] | None = None, network: dict[str, int] | None = None, **parts: int) -> Receipt:
    all_parts = dict.fromkeys(PARTS, 0) | parts
    return Receipt(sum(all_parts.values()), all_parts, {}, {}, unreported or [], network or {})


def test_the_sentence_is_a_sum() -> None:
    seen = told(landed=1_765_800, quarantined=27_000, lost=7_200)
    assert sentence(seen) == "1,800,000 sent = landed 98.1 % + quarantined 1.5 % + lost 0.4 % + on the way 0"
    assert sentence(told(kept=9, on_the_way=1)) == "10 sent = in the log only 90.0 % + lost 0 % + on the way 1"


def test_reasons_give_the_bytes_of_overlong_lines() -> None:
    lost = {"line.overlong": 2, "invalid.type": 3}
    assert reasons(lost, skipped_bytes=9_100_000) == "3 invalid type, 2 overlong (9,100,000 bytes)"


def test_verdict_names_loss_first() -> None:
    assert verdict(told(landed=9, lost=1)) == "1 message lost of 10, all explained"
    assert verdict(told(landed=9, lost=2_718)) == "2,718 messages lost of 2,727, all explained"
    assert verdict(told(landed=9)) == "No message lost of 9"
    assert verdict(told(landed=9, lost=3, unaccounted=2)) == "2 messages unaccounted for"
    assert verdict(told()) == "No message has arrived yet"


def test_verdict_names_refused_requests() -> None:
    assert verdict(replace(told(landed=9), refused_requests=2)) == "No message lost of 9; 2 requests refused"
    assert verdict(replace(told(), refused_requests=1)) == "No message has arrived yet; 1 request refused"


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 9, "0 %"), (9, 9, "100 %"), (1, 1_000_000, "<0.1 %"), (999_999, 1_000_000, "99.9 %"), (1, 8, "12.5 %")],
)
def test_a_share_hides_neither_a_loss_nor_what_lacks(part: int, whole: int, said: str) -> None:
    assert share(part, whole) == said


def test_reasons_come_most_first_and_the_rest_in_sum() -> None:
    counts = Counts(
        {"invalid.header": 3200, "kernel_dropped": 2718, "refused.oversize": 2, "bad_checksum": 1, "corrupt": 1}
    )
    assert (
        reasons(counts) == "3,200 invalid header, 2,718 dropped by the kernel, 2 refused oversize, 2 for other reasons"
    )


@pytest.mark.parametrize("name", LOST)
def test_every_loss_has_a_reason_in_words(name: str) -> None:
    said = reason(name + "some" if name.endswith(".") else name)
    assert said
    assert not set(said) & set("._")


@pytest.mark.parametrize("width", [20, 80])
def test_a_bar_is_as_wide_as_it_should_be_and_shows_the_smallest_part(width: int) -> None:
    drawn = bar(told(landed=1_000_000, lost=1, on_the_way=500_000), width)
    assert (len(drawn), drawn.count("x")) == (width, 1)
    assert bar(told(), width) == "·" * width


def test_what_is_not_known_is_said() -> None:
    assert unknown(told(["a", "b"])) == "not known: what senders of a, b sent (they do not report)"
    assert unknown(told(network={"a": 12})) == "the network lost 12 of a, by the senders' reports"
    assert unknown(told()) == ""
