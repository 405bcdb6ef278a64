"""Texts of the receipt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.counts import LOST, Counts
from penstock.ledger.receipt import PARTS, Receipt
from penstock.ledger.receipt_words import bar, reason, reasons, remarks, sentence, share, verdict


def receipt_with(unreported: list[str] | None = None, network: dict[str, int] | None = None, **parts: int) -> Receipt:
    all_parts = dict.fromkeys(PARTS, 0) | parts
    return Receipt(sum(all_parts.values()), all_parts, {}, {}, unreported or [], network or {})


def test_sentence_is_a_sum() -> None:
    seen = receipt_with(landed=1_765_800, quarantined=27_000, lost=7_200)
    assert sentence(seen) == "1,800,000 sent = landed 98.1 % + quarantined 1.5 % + lost 0.4 % + on the way 0"
    assert sentence(receipt_with(kept=9, on_the_way=1)) == "10 sent = in the log only 90.0 % + lost 0 % + on the way 1"


def test_reasons_give_the_bytes_of_overlong_lines() -> None:
    lost = {"line.overlong": 2, "invalid.type": 3}
    assert reasons(lost, skipped_bytes=9_100_000) == "3 invalid type, 2 overlong (9,100,000 bytes)"


def test_reason_keeps_the_names_of_a_contract() -> None:
    assert reason("contract.order_lines.unit_price.min") == "contract order_lines.unit_price.min"
    assert reason("invalid.missing_type") == "invalid missing type"


def test_verdict_names_loss_first() -> None:
    assert verdict(receipt_with(landed=9, lost=1)) == "1 message lost of 10, all explained"
    assert verdict(receipt_with(landed=9, lost=2_718)) == "2,718 messages lost of 2,727, all explained"
    assert verdict(receipt_with(landed=9)) == "No message lost of 9"
    assert verdict(receipt_with(landed=9, lost=3, unaccounted=2)) == "2 messages unaccounted for"
    assert verdict(receipt_with()) == "No message has arrived yet"


def test_verdict_names_unreadable_files() -> None:
    assert verdict(replace(receipt_with(landed=9), unreadable=2)) == (
        "No message lost of 9; 2 files of the tables cannot be read"
    )


def test_verdict_names_refused_requests() -> None:
    assert verdict(replace(receipt_with(landed=9), refused_requests=2)) == "No message lost of 9; 2 requests refused"
    assert verdict(replace(receipt_with(), refused_requests=1)) == "No message has arrived yet; 1 request refused"


@pytest.mark.parametrize(
    ("part", "total", "text"),
    [(0, 9, "0 %"), (9, 9, "100 %"), (1, 1_000_000, "<0.1 %"), (999_999, 1_000_000, "99.9 %"), (1, 8, "12.5 %")],
)
def test_share_hides_no_small_loss(part: int, total: int, text: str) -> None:
    assert share(part, total) == text


def test_reasons_are_sorted_by_count_with_the_rest_summed() -> None:
    counts = Counts(
        {"invalid.header": 3200, "kernel_dropped": 2718, "refused.oversize": 2, "bad_checksum": 1, "corrupt": 1}
    )
    assert (
        reasons(counts) == "3,200 invalid header, 2,718 dropped by the kernel, 2 refused oversize, 2 for other reasons"
    )


@pytest.mark.parametrize("name", LOST)
def test_every_loss_has_a_reason_text(name: str) -> None:
    text = reason(name + "some" if name.endswith(".") else name)
    assert text
    assert not set(text) & set("._")


@pytest.mark.parametrize("width", [20, 80])
def test_bar_has_its_width_and_shows_the_smallest_part(width: int) -> None:
    drawn = bar(receipt_with(landed=1_000_000, lost=1, on_the_way=500_000), width)
    assert (len(drawn), drawn.count("x")) == (width, 1)
    assert bar(receipt_with(), width) == "·" * width


def test_unknown_counts_are_reported() -> None:
    assert remarks(receipt_with(["a", "b"])) == "not known: what senders of a, b sent (they do not report)"
    assert remarks(receipt_with(network={"a": 12})) == "the network lost 12 of a, by the senders' reports"
    assert remarks(receipt_with()) == ""


def test_remarks_name_offsets_of_kafka_without_a_message() -> None:
    absent = Counts({"not_a_message.control": 2, "compacted": 1_000, "not_a_message.aborted": 30})
    assert remarks(replace(receipt_with(landed=9), without_message=absent)) == (
        "1,032 offsets of Kafka hold no message: 1,000 compacted, 30 of aborted transactions, 2 control records"
    )
