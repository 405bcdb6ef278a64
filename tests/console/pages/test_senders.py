"""The pages of senders and of hosts."""

from __future__ import annotations

from penstock.console.pages.senders import hosts_html, senders_html

LARGE = {
    "sender": "<192.0.2.1>",
    "first_seen": 1_800_000_000.0,
    "last_seen": 1_800_000_060.0,
    "accepted": 81240,
    "losses": {"hole": 12, "refused": 1},
    "silent": True,
    "new": False,
    "silence_s": 1094.2,
    "usual_pause_s": 60.0,
}
SMALL = {**LARGE, "sender": "db1", "accepted": 3, "losses": {}, "silent": False, "new": True, "usual_pause_s": None}
DOCUMENT = {
    "listeners": [
        {"listener": "web", "number": 7, "senders": [LARGE, SMALL]},
        {"listener": "tcp", "number": 0, "senders": []},
    ]
}


def test_senders_are_listed_by_listener_with_losses_and_state() -> None:
    html = senders_html(DOCUMENT)
    assert "<h3>web, the largest 2 of 7</h3>" in html
    assert "tcp" not in html
    assert "&lt;192.0.2.1&gt;" in html
    assert "hole 12, refused 1" in html
    assert ">2027-01-15 08:00:00<" in html
    assert "silent for" in html
    assert "new" in html


def test_listeners_without_senders_have_no_table() -> None:
    assert senders_html({"listeners": DOCUMENT["listeners"][1:]}) == ""


def test_hosts_are_listed_with_fates_and_lag() -> None:
    fates = {"landed.event": 90, "landed.syslog": 3, "gap.corrupt": 2, "duplicate": 1}
    entry = {"host": "<a>", "listener": "in", "accepted": 100, "fates": fates, "pending": 4, "last_seen": 1_800_000_000}
    html = hosts_html({"hosts": [entry]}, 1_800_000_090.0)
    cells = [part.partition("<")[0] for part in html.replace("</td>", "<td").split('data-head="') if "</th" not in part]
    text = " ".join(cells)
    for expected in (">&lt;a&gt;", ">100", ">93", ">4", ">2 ", "duplicate 1", "gap.corrupt 2", "2027-01-15 08:00:00"):
        assert expected in text + " ", expected
    assert "not registered" in html
    assert "No host relays" in hosts_html({}, 0.0)


def test_registered_host_has_its_own_counts_and_differences() -> None:
    there = {
        "accepted": 130, "expired": 1, "pending": 20, "lost_with_disk": 7, "unaccounted": 2, "lost": 11, "sent": 150,
        "lag_s": 90.0, "reported_at": 1_800_000_030.0, "clock_offset_s": -0.5, "version": "<1>",
        "differs_since": 1_800_000_000,
    }  # fmt: skip
    entry = {"host": "a", "listener": "in", "accepted": 100, "fates": {}, "pending": 0, "last_seen": 0}
    html = hosts_html({"hosts": [entry | {"on_host": there}]}, 1_800_000_090.0)
    for expected in (">150<", ">130<", ">20<", ">7<", ">11<", "-0.5 s", "&lt;1&gt;", "2027-01-15 08:00:30"):
        assert expected in html, expected
    assert "2 differ since 2027-01-15 08:00:00" in html
    assert "books" in hosts_html({"hosts": [entry | {"on_host": {**there, "unaccounted": 0}}]}, 0.0)


def test_host_over_kafka_has_its_counts_and_what_is_missing_since_when() -> None:
    compared = {
        "accepted": 130, "failed": 4, "dropped": 7, "pending": 20, "lost_with_disk": 8, "missing": 5, "doubled": 0,
        "in_kafka": 3, "missing_minutes": [1_800_000_000, 1_800_000_060], "reported_at": 1_800_000_030.0,
        "clock_offset_s": -0.5, "version": "<1>",
    }  # fmt: skip
    entry = {"host": "a", "listener": "in", "accepted": 100, "fates": {}, "pending": 0, "last_seen": 0, "way": "kafka"}
    html = hosts_html({"hosts": [entry | {"over_kafka": compared}]}, 0.0)
    for expected in (">kafka<", ">130<", ">11<", ">20<", ">8<", "-0.5 s", "&lt;1&gt;", "5 missing since 2027-01-15 08"):
        assert expected in html, expected
    assert "3 in kafka" in html
    assert "doubled" not in html
    assert "not registered" in hosts_html({"hosts": [entry | {"over_kafka": None}]}, 0.0)
