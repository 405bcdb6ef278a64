"""plog's protocol: what each kind of datagram becomes."""

from __future__ import annotations

import pytest

from penstock.counts import Counts, open_books
from penstock.records import BODY
from penstock.wire.datagrams import Datagrams
from penstock.wire.decoded import Decoded
from penstock.wire.plog.codec import PlogDecoder, PlogSettings
from penstock.wire.plog.commands import Command
from penstock.wire.plog.cutting import fragment
from penstock.wire.plog.holes import HoleSettings
from penstock.wire.raw import RawDecoder

LARGE = b"<" + b"x" * 249


def decode(*datagrams: bytes, decoder: PlogDecoder | None = None, now: float = 0.0) -> Decoded:
    decoded = (decoder or PlogDecoder()).decode(Datagrams.from_bytes(datagrams), now)
    assert decoded.body.schema == BODY
    assert open_books(decoded.counts) == []
    return decoded


def payloads(decoded: Decoded) -> list[bytes]:
    return decoded.body["payload"].to_pylist()


@pytest.mark.parametrize(
    ("datagram", "counts"),
    [
        (b"hello", {"taken": 1, "unboxed": 1, "seen": 1, "accepted": 1}),
        (b"\x20", {"taken": 1, "unboxed": 1, "seen": 1, "accepted": 1}),
        (b"\xff", {"taken": 1, "unboxed": 1, "seen": 1, "accepted": 1}),
        (b"", {"taken": 1, "empty": 1}),
        (b"\0", {"taken": 1, "invalid.header": 1}),
        (b"\x01", {"taken": 1, "invalid.version": 1}),
        (b"\x1fabc", {"taken": 1, "invalid.version": 1}),
        (b"\0\2", {"taken": 1, "invalid.type": 1}),
        (b"\0\1short", {"taken": 1, "invalid.header": 1}),
        (b"\0\0KLIL", {"taken": 1, "invalid.unknown_command": 1}),
        (b"\0\0", {"taken": 1, "invalid.unknown_command": 1}),
        (b"\0\0sTaTistics please", {"taken": 1, "command": 1}),
    ],
)
def test_every_datagram_has_its_count(datagram: bytes, counts: dict[str, int]) -> None:
    assert decode(datagram).counts.pruned() == counts


def test_an_unboxed_message_is_the_whole_datagram() -> None:
    assert payloads(decode(b"one", b"", b"t" * 60_000, b"\xff\0")) == [b"one", b"t" * 60_000, b"\xff\0"]


def test_nothing_at_all_is_a_round_too() -> None:
    assert (decode().body.num_rows, decode().counts.pruned()) == (0, {})


def test_commands_are_handed_back_with_their_place() -> None:
    decoded = decode(b"x", b"\0\0ping123", b"\0\0nope", b"\0\0KILL")
    assert decoded.commands == [Command(1, "PING", b"123"), Command(3, "KILL", b"")]


def test_messages_stand_where_they_were_completed() -> None:
    parts = fragment(LARGE, 1, fragment_size=100)
    single = fragment(b"single", 2)
    decoded = decode(parts[1], b"a", parts[0], b"b", *single, b"\0\0PING", parts[2], b"c")
    assert payloads(decoded) == [b"a", b"b", b"single", LARGE, b"c"]
    assert decoded.counts["fragment.used"] == 4


def test_a_message_may_take_many_rounds() -> None:
    decoder, total = PlogDecoder(), Counts()
    parts = fragment(LARGE, 1, fragment_size=100)
    for part in parts[:2]:
        total.absorb(decode(part, decoder=decoder).counts)
    assert (decoder.open_messages, decoder.open_fragments, decoder.held_bytes) == (1, 2, 200)
    assert total.pruned() == {"taken": 2, "seen": 1, "open": 1, "fragment.open": 2}
    last = decode(parts[2], decoder=decoder)
    assert payloads(last) == [LARGE]
    assert last.counts.pruned() == {"taken": 1, "accepted": 1, "open": -1, "fragment.open": -2, "fragment.used": 3}


def test_tags_become_an_annotation_and_the_key() -> None:
    parts = fragment(b"tagged", 1, tags=("kt:topic", "pk:first", "a", "a", "pk:key"))
    decoded = decode(b"plain", *parts)
    assert decoded.body["key"].to_pylist() == [None, b"key"]
    assert decoded.body["annotations"].to_pylist() == [None, [("tags", "kt:topic\0pk:first\0a\0a\0pk:key")]]


def test_latest_tags_count_in_one_batch_or_several() -> None:
    parts = [fragment(b"m" * 25, 1, tags=(tag,), fragment_size=10) for tag in ("one", "two", "pk:3")]
    sent = [parts[0][2], fragment(b"m" * 25, 1, fragment_size=10)[0], _with_tags(parts[1][1], b"two"), b"plain"]
    assert len({bytes(part[16:20]) for part in sent[:3]}) == 1
    for cut in range(5):
        decoder = PlogDecoder()
        rounds = [decoder.decode(Datagrams.from_bytes(cuts), 0.0).body for cuts in (sent[:cut], sent[cut:])]
        rows = [row for batch in rounds for row in batch.to_pylist()]
        assert [(row["payload"], row["annotations"]) for row in rows] == [
            (b"m" * 25, [("tags", "two")]),
            (b"plain", None),
        ]


def _with_tags(part: bytes, tags: bytes) -> bytes:
    return part[:20] + len(tags).to_bytes(2, "big") + part[22:24] + tags + part[24:]


def test_tags_that_are_no_utf8_do_not_stop_anything() -> None:
    head = fragment(b"", 1)[0][:20] + b"\0\5\0\0"
    decoded = decode(head + b"pk:\xff\xfe")
    decoded.body.validate(full=True)
    assert decoded.body["key"].to_pylist() == [b"\xff\xfe"[:2]]
    assert decoded.body["annotations"].to_pylist() == [[("tags", "pk:\ufffd\ufffd")]]


def test_tags_of_the_last_fragment_to_arrive_count() -> None:
    parts = fragment(LARGE, 1, fragment_size=100)
    tagged = zip(parts, (b"a", b"b", b"c"), strict=True)
    first, second, third = (part[:20] + b"\0\1\0\0" + tag + part[24:] for part, tag in tagged)
    for order in ([first, third, second], [third, first, first, second]):
        assert decode(*order).body["annotations"].to_pylist() == [[("tags", "b")]]


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_message_too_large_is_refused_at_its_first_fragment(rounds: int) -> None:
    decoder, total = PlogDecoder(PlogSettings(max_size=249)), Counts()
    for part in fragment(LARGE, 1, fragment_size=100):
        total.absorb(decode(part, decoder=decoder).counts)
    assert total.pruned() == {"taken": 3, "seen": 1, "refused.oversize": 1, "fragment.discarded": 3}
    assert decoder.held_bytes == 0


def test_a_bad_checksum_is_counted_wherever_it_is_found() -> None:
    spoiled = [part[:16] + b"abcd" + part[20:] for part in fragment(LARGE, 1, fragment_size=100)]
    alone = fragment(b"alone", 2)[0]
    decoded = decode(*spoiled, alone[:-1] + b"?")
    assert decoded.counts.pruned() == {"taken": 4, "seen": 2, "bad_checksum": 2, "fragment.discarded": 4}
    assert decoded.body.num_rows == 0


def test_incomplete_message_expires() -> None:
    decoder = PlogDecoder(PlogSettings(expire_time=5.0))
    parts = fragment(LARGE, 1, fragment_size=100)
    decode(parts[0], decoder=decoder)
    assert decoder.expire(4.9).pruned() == {}
    counts = decode(parts[1], decoder=decoder, now=5.0).counts.pruned()
    assert counts == {"taken": 1, "incomplete.expired": 1, "open": -1, "fragment.open": -1, "fragment.discarded": 2}


def test_holes_are_counted_unless_they_are_not_wanted() -> None:
    sent = [part for number in (1, 2, 5, *range(6, 16)) for part in fragment(b"m", number)]
    assert decode(*sent).counts["hole"] == 2
    assert decode(*sent, decoder=PlogDecoder(PlogSettings(holes=HoleSettings(enabled=False)))).counts["hole"] == 0


def test_senders_with_the_same_ids_are_kept_apart() -> None:
    ours, theirs = (fragment(bytes([letter]) * 150, 1, fragment_size=100) for letter in b"ab")
    sent = [ours[0], theirs[0], ours[1], theirs[1]]
    for ports, addresses in (([1, 2, 1, 2], [0] * 4), ([0] * 4, [1, 2, 1, 2])):
        decoded = PlogDecoder().decode(Datagrams.from_bytes(sent, ports=ports, addresses=addresses), 0.0)
        assert payloads(decoded) == [b"a" * 150, b"b" * 150]


def test_raw_takes_every_datagram_as_it_is() -> None:
    decoder = RawDecoder()
    decoded = decoder.decode(Datagrams.from_bytes([b"\0\0PING", b"", b"x"]), 0.0)
    assert payloads(decoded) == [b"\0\0PING", b"x"]
    assert decoded.counts.pruned() == {"taken": 3, "empty": 1, "unboxed": 2, "seen": 2, "accepted": 2}
    assert open_books(decoded.counts) == []
    assert decoder.expire(1.0).pruned() == {}
