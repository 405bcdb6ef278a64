"""The checks of a run notice each broken promise."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.log import Gap
from penstock.testing.simulation.promises import Broken, Promises, Published, Sent


def batch(*rows: tuple[int, int, bytes]) -> pa.RecordBatch:
    offsets, timestamps, payloads = zip(*rows, strict=True)
    columns = pa.array(offsets, pa.int64()), pa.array(timestamps, pa.timestamp("us")), pa.array(payloads, pa.binary())
    return pa.RecordBatch.from_arrays([*columns], ["offset", "timestamp", "payload"])


def see(model: Promises, *rows: tuple[int, int, bytes], begin: int = 0, end: int = 0, gaps: Sequence[Gap] = ()) -> None:
    model.see("t", [batch(*rows)] if rows else [], "reader", begin, end, lambda: gaps)


def promises(*sent: Sent) -> Promises:
    return Promises(sent=list(sent))


def test_acknowledged_message_must_be_stored_once() -> None:
    sent = Sent("t", [b"a"], once=True)
    model = promises(sent)
    model.acknowledge(sent, 0)
    model.check_topic("t", {0: (1, b"a")}, [], 1)
    with pytest.raises(Broken, match="acknowledged for"):
        model.check_topic("t", {0: (1, b"b")}, [], 1)
    with pytest.raises(Broken, match="stored 2 times, not 1 to 1"):
        model.check_topic("t", {0: (1, b"a"), 1: (2, b"a")}, [], 2)


def test_refused_message_must_not_be_stored() -> None:
    with pytest.raises(Broken, match="stored 1 times, not 0 to 0"):
        promises(Sent("t", [b"a"], once=True)).check_topic("t", {0: (1, b"a")}, [], 1)


def test_message_without_answer_may_be_stored_as_often_as_it_was_sent() -> None:
    model = promises(Sent("t", [b"a"], once=False, uncertain=2))
    for copies in (0, 1, 2):
        model.check_topic("t", {offset: (offset, b"a") for offset in range(copies)}, [], copies)
    with pytest.raises(Broken, match="stored 3 times"):
        model.check_topic("t", {offset: (offset, b"a") for offset in range(3)}, [], 3)


def test_row_that_was_read_must_not_change() -> None:
    model = promises(Sent("t", [b"a", b"b"], once=True, uncertain=1))
    see(model, (0, 10, b"a"))
    with pytest.raises(Broken, match="offset 0 of t was"):
        see(model, (0, 11, b"a"))
    with pytest.raises(Broken, match="was read as"):
        model.check_topic("t", {0: (10, b"b")}, [], 1)


def test_timestamps_must_increase() -> None:
    with pytest.raises(Broken, match="timestamp 10 at offset 1"):
        see(promises(), (0, 10, b"a"), (1, 10, b"b"))


def test_reader_must_see_each_offset_that_is_in_no_gap() -> None:
    rows = (2, 10, b"a"), (3, 11, b"b")
    see(promises(), *rows, gaps=[Gap(0, 2, "corrupt")])
    see(promises(), *rows, begin=2)
    see(promises(), begin=1, end=3, gaps=[Gap(0, 3, "corrupt")])
    for gaps in ([], [Gap(1, 2, "corrupt")]):
        with pytest.raises(Broken, match="offset 0 of t is skipped"):
            see(promises(), *rows, gaps=gaps)
    with pytest.raises(Broken, match="offset 1 of t is skipped"):
        see(promises(), rows[1], begin=1, gaps=[Gap(2, 3, "corrupt")])
    with pytest.raises(Broken, match="offset 2 of t is skipped"):
        see(promises(), begin=1, end=3, gaps=[Gap(0, 2, "corrupt")])


def test_row_must_not_expire_before_its_time() -> None:
    model = promises()
    see(model, (0, 10, b"a"), (1, 20, b"b"))
    model.check_expired("t", [Gap(0, 1, "expired_read"), Gap(1, 2, "corrupt")], 10)
    with pytest.raises(Broken, match="offset 1 of 20 expired before its time"):
        model.check_expired("t", [Gap(0, 2, "expired_unread")], 19)


def test_published_message_must_be_stored_or_counted_as_dropped() -> None:
    model = promises()
    for stored, dropped in [(5, 2), (7, 0), (5, 3)]:
        model.check_listener(Published("udp", complete=7, uncertain=1), stored, dropped)
    for stored, dropped in [(6, 0), (7, 2)]:
        with pytest.raises(Broken, match="messages are stored"):
            model.check_listener(Published("udp", complete=7, uncertain=1), stored, dropped)
    model.check_listener(Published("udp", complete=7), 6, 0, corrupt=1)
    with pytest.raises(Broken, match="messages are stored"):
        model.check_listener(Published("udp", complete=7), 7, 0, corrupt=1)
    model.check_listener(Published("udp", complete=7, spared=2), 6, 1, corrupt=2)
    for dropped, corrupt in [(0, 2), (1, 3)]:
        with pytest.raises(Broken, match="messages are stored"):
            model.check_listener(Published("udp", complete=7, spared=2), 6, dropped, corrupt)
    model.cut_power()
    model.check_listener(Published("udp", complete=7), 4, 0)
    with pytest.raises(Broken, match="messages are stored"):
        model.check_listener(Published("udp", complete=7), 4, 4)


def test_each_offset_must_be_a_row_or_in_a_gap() -> None:
    with pytest.raises(Broken, match="do not cover"):
        promises().check_topic("t", {}, [], 1)
    with pytest.raises(Broken, match="a corrupt gap without damage"):
        promises().check_topic("t", {}, [Gap(0, 1, "corrupt")], 1)
    torn = promises()
    torn.cut_power()
    torn.check_topic("t", {}, [Gap(0, 1, "corrupt")], 1)
    torn.acknowledged["t"][0] = b"m"
    with pytest.raises(Broken, match="a corrupt gap without damage"):
        torn.check_topic("t", {}, [Gap(0, 1, "corrupt")], 1)
    with pytest.raises(Broken, match="an unexpected gap"):
        promises().check_topic("t", {}, [Gap(0, 1, "expired_read")], 1)
    with pytest.raises(Broken, match="an unexpected gap"):
        Promises(frozenset(["t"]), damages=1).check_topic("t", {}, [Gap(0, 1, "deleted")], 1)
    Promises(frozenset(["t"]), damages=1, has_lies=True).check_topic("t", {}, [Gap(0, 1, "deleted")], 1)
    Promises(frozenset(["t"])).check_topic("t", {}, [Gap(0, 1, "expired_read")], 1)


def test_transaction_must_be_stored_as_a_whole() -> None:
    parts = [Sent("t", [b"a"], once=True), Sent("u", [b"b"], once=True)]
    model = Promises(transactions=[parts])
    model.check_transactions({"t": {b"a"}, "u": {b"b"}}, set())
    model.check_transactions({"t": set(), "u": set()}, set())
    with pytest.raises(Broken, match="stored in part"):
        model.check_transactions({"t": {b"a"}, "u": set()}, set())


def test_rows_that_lying_syncs_lost_are_excused_and_others_are_not() -> None:
    lost, stored = Sent("t", [b"b"], once=True), Sent("t", [b"a"], once=True)
    model = promises(stored, lost)
    model.acknowledge(stored, 0)
    model.acknowledge(lost, 1)
    see(model, (0, 10, b"a"), (1, 20, b"b"), end=2)
    model.lose_end("t", 1, 2, {b"a"})
    model.check_topic("t", {0: (10, b"a")}, [], 1)
    with pytest.raises(Broken, match="offset 0 of t was read as"):
        model.check_topic("t", {}, [], 0)
