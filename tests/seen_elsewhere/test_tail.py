"""Faults of other programs that follow files: what happened to the files, and the lines that belong in the topic.

Each row is a public report. A new report is one more row. "Expected" holds each line once; the order is that of the
files and is not compared across them.
"""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.client.tail.tailer import COPY_WAIT_S, GRACE_S
from tests.client.tail.following import (
    Following,
    Step,
    append,
    copy,
    cut,
    hard_link,
    killed,
    link,
    make_fifo,
    make_folder,
    once,
    play,
    poll,
    remove,
    rename,
    replace,
    stop,
    wait,
    write_at,
)


class Report(NamedTuple):
    """``reference``: where it was reported. ``patterns``: what is followed."""

    reference: str
    patterns: tuple[str, ...]
    steps: list[Step]
    expected: list[bytes]


def lines(text: str, count: int, first: int = 0) -> list[bytes]:
    return [b"%b %04d" % (text.encode(), number) for number in range(first, first + count)]


def content(*groups: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for group in groups for line in group)


HEADER = [b"#Software: Server 10.0", b"#Fields: " + b" ".join(b"field-%03d" % number for number in range(400))]
"""Longer than every fingerprint at a file's beginning."""
FIRST, SECOND = lines("first", 20), lines("second", 40)
OLD, NEW = lines("old", 50), lines("new", 5)
COMPRESSED = gzip.compress(content(OLD) + random.Random(1).randbytes(3000))
"""Has bytes that look like the ends of lines."""
ALL = ("app.log*",)
LIVE = ("app.log",)
UNTIL_SETTLED: list[Step] = [poll, wait(COPY_WAIT_S), poll]
"""Looks until copies are told from files of their own."""

REPORTS = [
    Report(
        "open-telemetry/opentelemetry-collector-contrib#43693 (copytruncate, the new content begins as the old one)",
        LIVE,
        [
            append("app.log", content(HEADER, FIRST)),
            poll,
            cut("app.log"),
            append("app.log", content(HEADER, SECOND)),
            poll,
        ],
        [*HEADER, *FIRST, *HEADER, *SECOND],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#43693, while nobody follows",
        LIVE,
        [append("app.log", content(HEADER, FIRST)), once, replace("app.log", content(HEADER, SECOND)), once],
        [*HEADER, *FIRST, *HEADER, *SECOND],
    ),
    Report(
        "elastic/beats#51417 (truncated, and longer than before at the next look)",
        LIVE,
        [
            append("app.log", content(HEADER, FIRST)),
            once,
            cut("app.log"),
            append("app.log", content(HEADER, SECOND)),
            once,
        ],
        [*HEADER, *FIRST, *HEADER, *SECOND],
    ),
    Report(
        "elastic/beats#45300 (copytruncate twice, with a restart in between)",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            copy("app.log", "app.log.1"),
            cut("app.log"),
            append("app.log", content(FIRST)),
            *UNTIL_SETTLED,
            stop,
            rename("app.log.1", "app.log.2"),
            copy("app.log", "app.log.1"),
            cut("app.log"),
            append("app.log", content(SECOND)),
            *UNTIL_SETTLED,
        ],
        [*OLD, *FIRST, *SECOND],
    ),
    Report(
        "fluent/fluentd#3777 (rotated more than once while nobody follows)",
        ALL,
        [
            append("app.log", content(OLD[:20])),
            once,
            append("app.log", content(OLD[20:])),
            rename("app.log", "app.log.1"),
            append("app.log", content(FIRST)),
            rename("app.log.1", "app.log.2"),
            rename("app.log", "app.log.1"),
            append("app.log", content(SECOND)),
            *UNTIL_SETTLED,
        ],
        [*OLD, *FIRST, *SECOND],
    ),
    Report(
        "fluent/fluentd#1383 (the oldest file is removed, and the present one renamed and begun again)",
        ALL,
        [
            append("app.log.1", content(OLD)),
            append("app.log", content(FIRST)),
            *UNTIL_SETTLED,
            remove("app.log.1"),
            rename("app.log", "app.log.1"),
            append("app.log", content(SECOND)),
            *UNTIL_SETTLED,
        ],
        [*OLD, *FIRST, *SECOND],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#19765 (a rotated file and its successor begin the same)",
        ALL,
        [
            append("app.log", b"aaaaaa\nbbbb\nccc\n"),
            poll,
            rename("app.log", "app.log.1"),
            append("app.log", b"aaaaaa\n1111\n222\n33\n"),
            *UNTIL_SETTLED,
        ],
        [b"aaaaaa", b"bbbb", b"ccc", b"aaaaaa", b"1111", b"222", b"33"],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#20745 (two files with the same beginning, both go on)",
        ("*.log",),
        [
            append("a.log", b"aaaaaaaaaaa\n"),
            append("b.log", b"aaaaaaaaaaa\n"),
            poll,
            append("a.log", b"ddd\n"),
            append("b.log", b"bbbbbbbbbbbb\n"),
            poll,
        ],
        [b"aaaaaaaaaaa", b"aaaaaaaaaaa", b"ddd", b"bbbbbbbbbbbb"],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#46496 (messages and syslog have the same content)",
        ("messages", "syslog"),
        [append("messages", content(OLD)), append("syslog", content(OLD)), poll, wait(COPY_WAIT_S), poll],
        [*OLD, *OLD],
    ),
    Report(
        "vectordotdev/vector#25079 (an inode is used again, the beginning is the same)",
        ("*.log",),
        [
            append("a.log", content(HEADER, FIRST)),
            once,
            rename("a.log", "b.log"),
            cut("b.log"),
            append("b.log", content(HEADER, SECOND)),
            once,
        ],
        [*HEADER, *FIRST, *HEADER, *SECOND],
    ),
    Report(
        "elastic/beats#1341 (an inode is used again for a shorter file with another name)",
        ("*.log",),
        [
            append("a.log", content(OLD)),
            poll,
            stop,
            rename("a.log", "b.log"),
            cut("b.log"),
            append("b.log", content(NEW)),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "vectordotdev/vector#643 (empty files are all the same)",
        ("*.log",),
        [
            append("a.log", b""),
            append("b.log", b""),
            poll,
            append("a.log", b"1\n"),
            append("b.log", b"2\n"),
            *UNTIL_SETTLED,
        ],
        [b"1", b"2"],
    ),
    Report(
        "fluent/fluentd#1613 (logrotate's copy: the original continues)",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            copy("app.log", "app.log.1"),
            *UNTIL_SETTLED,
            append("app.log", content(NEW)),
            poll,
            wait(GRACE_S),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "fluent/fluentd#1613, made while nobody follows, and again under the next name",
        ALL,
        [
            append("app.log", content(OLD)),
            once,
            copy("app.log", "app.log.1"),
            append("app.log", content(NEW)),
            once,
            rename("app.log.1", "app.log.2"),
            copy("app.log", "app.log.1"),
            append("app.log", content(SECOND)),
            once,
            cut("app.log"),
            once,
        ],
        [*OLD, *NEW, *SECOND],
    ),
    Report(
        "fluent/fluent-bit-docs#380 (the copy has a line that the original has not ended)",
        ALL,
        [
            append("app.log", content(OLD) + b"half"),
            poll,
            copy("app.log", "app.log.1"),
            *UNTIL_SETTLED,
            wait(GRACE_S),
            poll,
            append("app.log", b" line\n"),
            poll,
            stop,
            poll,
        ],
        [*OLD, b"half line"],
    ),
    Report(
        "fluent/fluentd#1613 (a copy that cannot be told from another program's file is read again)",
        ("*.log",),
        [
            append("app.log", content(HEADER, OLD)),
            poll,
            copy("app.log", "app.1.log"),
            *UNTIL_SETTLED,
            append("app.log", content(NEW)),
            poll,
        ],
        [*HEADER, *OLD, *HEADER, *OLD, *NEW],
    ),
    Report(
        "fluent/fluentd#1613 (the beginning and the end are the original's, and a line between them is not)",
        ALL,
        [
            append("app.log", content(HEADER, OLD, [b"status 016"], OLD, HEADER)),
            poll,
            append("app.log.1", content(HEADER, OLD, [b"status 017"], OLD, HEADER)),
            *UNTIL_SETTLED,
        ],
        [*HEADER, *OLD, b"status 016", *OLD, *HEADER, *HEADER, *OLD, b"status 017", *OLD, *HEADER],
    ),
    Report(
        "fluent/fluentd#1613 (the original is a link to the newest file of a run)",
        ALL,
        [
            append("app.log.2026-11-01", content(HEADER, OLD)),
            link("app.log.2026-11-01", "app.log"),
            poll,
            append("app.log.2026-11-02", content(HEADER, OLD)),
            *UNTIL_SETTLED,
        ],
        [*HEADER, *OLD, *HEADER, *OLD],
    ),
    Report(
        "fluent/fluentd#1613 (a copy that grows by lines of its own)",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            copy("app.log", "app.log.1"),
            *UNTIL_SETTLED,
            append("app.log", content(NEW)),
            append("app.log.1", content(NEW[:1])),
            poll,
            append("app.log.1", content(SECOND)),
            poll,
            append("app.log.1", content(SECOND)),
            poll,
        ],
        [*OLD, *NEW, *NEW[:1], *SECOND, *SECOND],
    ),
    Report(
        "fluent/fluent-bit#4839 (another program's file begins with the same lines)",
        ("*.log",),
        [
            append("app.log", content(HEADER, OLD)),
            poll,
            append("app.1.log", content(HEADER)),
            *UNTIL_SETTLED,
            append("app.1.log", content(NEW)),
            poll,
        ],
        [*HEADER, *OLD, *HEADER, *NEW],
    ),
    Report(
        "fluent/fluentd#1613, made again in the same file, which is longer then",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            copy("app.log", "app.log.1"),
            *UNTIL_SETTLED,
            stop,
            append("app.log", content(NEW)),
            copy("app.log", "app.log.1"),
            *UNTIL_SETTLED,
            append("app.log", content(SECOND)),
            poll,
        ],
        [*OLD, *NEW, *SECOND],
    ),
    Report(
        "fluent/fluentd#1613, made again in the same file after the original was cut",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            copy("app.log", "app.log.1"),
            *UNTIL_SETTLED,
            cut("app.log"),
            append("app.log", content(SECOND)),
            poll,
            wait(GRACE_S),
            poll,
            copy("app.log", "app.log.1"),
            *UNTIL_SETTLED,
        ],
        [*OLD, *SECOND],
    ),
    Report(
        "fluent/fluent-bit#1330 (a stop before it is known that the file is a copy)",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            copy("app.log", "app.log.1"),
            poll,
            stop,
            *UNTIL_SETTLED,
        ],
        OLD,
    ),
    Report(
        "fluent/fluent-bit#375 (the original is cut long after it was copied, by hand)",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            copy("app.log", "app.log.1"),
            *UNTIL_SETTLED,
            cut("app.log"),
            poll,
            append("app.log", content(NEW)),
            poll,
            wait(GRACE_S),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "fluent/fluentd#1613, the copy is removed before it was decided",
        ALL,
        [
            append("app.log", content(OLD) + b"half"),
            poll,
            copy("app.log", "app.log.1"),
            poll,
            wait(GRACE_S),
            poll,
            remove("app.log.1"),
            wait(GRACE_S),
            poll,
        ],
        OLD,
    ),
    Report(
        "bgreenlee/pygtail#19 (equal lines, rotated twice between two looks: none is a copy)",
        ALL,
        [
            append("app.log", b"tick\n" * 300),
            poll,
            rename("app.log", "app.log.2"),
            append("app.log.1", b"tick\n" * 200),
            append("app.log", b"tick\n" * 250),
            poll,
            wait(1),
            *UNTIL_SETTLED,
            wait(GRACE_S),
            poll,
        ],
        [b"tick"] * 750,
    ),
    Report(
        "flori/file-tail#9 (cut to nothing, and empty for a while)",
        LIVE,
        [
            append("app.log", content(OLD)),
            poll,
            cut("app.log"),
            poll,
            wait(GRACE_S),
            poll,
            append("app.log", content(NEW)),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "flori/file-tail#14 (no file for a moment, and lines in the new one before it is opened)",
        LIVE,
        [
            append("app.log", content(OLD)),
            poll,
            append("app.log", content(FIRST)),
            rename("app.log", "app.log.bak"),
            poll,
            append("app.log", content(NEW)),
            poll,
        ],
        [*OLD, *FIRST, *NEW],
    ),
    Report(
        "hpcloud/tail#127 (a line just before the rename)",
        LIVE,
        [
            append("app.log", content(OLD)),
            poll,
            append("app.log", b"last\n"),
            rename("app.log", "app.log.1"),
            append("app.log", content(NEW)),
            poll,
            append("app.log.1", b"later\n"),
            poll,
        ],
        [*OLD, b"last", *NEW, b"later"],
    ),
    Report(
        "elastic/beats#39731 (the copy of copytruncate matches the pattern)",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            copy("app.log", "app.log.1"),
            cut("app.log"),
            append("app.log", content(NEW)),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#34833 (the copy is seen before the original is cut)",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            copy("app.log", "app.log.1"),
            poll,
            wait(1),
            cut("app.log"),
            poll,
            append("app.log", content(NEW)),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "elastic/beats#39731, while nobody follows: what was not read before the cut is read from the copy",
        ALL,
        [
            append("app.log", content(OLD)),
            once,
            append("app.log", content(FIRST)),
            copy("app.log", "app.log.1"),
            cut("app.log"),
            append("app.log", content(NEW)),
            once,
        ],
        [*OLD, *FIRST, *NEW],
    ),
    Report(
        "elastic/beats#39731, the copy is half made at one look",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            append("app.log.1", content(OLD)[:700]),
            poll,
            append("app.log.1", content(OLD)[700:]),
            poll,
            cut("app.log"),
            poll,
        ],
        OLD,
    ),
    Report(
        "fluent/fluent-bit#9580 (cut and written in one step between two looks)",
        LIVE,
        [
            append("app.log", content(lines("append", 9))),
            poll,
            cut("app.log"),
            append("app.log", b"overwrite 10\n"),
            poll,
        ],
        [*lines("append", 9), b"overwrite 10"],
    ),
    Report(
        "logrotate/logrotate#286, papertrail/go-tail#1 (a writer without O_APPEND continues at its old offset)",
        LIVE,
        [
            append("app.log", content(OLD)),
            poll,
            cut("app.log"),
            write_at("app.log", len(content(OLD)), content(NEW)),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "python-beaver/python-beaver#105 (500 MB of NULs)",
        LIVE,
        [
            append("app.log", content(OLD)),
            poll,
            cut("app.log"),
            poll,
            write_at("app.log", 500 << 20, content(NEW)),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "fluent/fluent-bit#3117 (NULs before the first line, at the first start)",
        LIVE,
        [append("app.log", b"\0" * 5000 + content(NEW)), poll],
        NEW,
    ),
    Report(
        "papertrail/remote_syslog2#192 (NULs whose end has not come are not a message)",
        LIVE,
        [
            append("app.log", content(OLD) + b"\0" * (3 << 20)),
            poll,
            write_at("app.log", len(content(OLD)), content(NEW)),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "google/mtail#219, elastic/filebeat#298, observIQ/stanza-plugins#96 (compressed rotations match the pattern)",
        ALL,
        [append("app.log", content(NEW)), append("app.log.2.gz", COMPRESSED), poll, once],
        NEW,
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#40523 (a file that was read is compressed)",
        ALL,
        [
            append("app.log", content(OLD)),
            poll,
            append("app.log.1.gz", COMPRESSED),
            remove("app.log"),
            append("app.log", content(NEW)),
            poll,
        ],
        [*OLD, *NEW],
    ),
    Report(
        "Ossssip/duplicacy-util#26 (a name that says gzip, content that is text)",
        ALL,
        [append("app.log.1.gz", content(OLD)), poll],
        OLD,
    ),
    Report(
        "natefinch/lumberjack#188 (a compressed file whose first bytes come one by one)",
        ALL,
        [
            append("app.log.1.gz", b"\x1f"),
            poll,
            append("app.log.1.gz", COMPRESSED[1:]),
            *UNTIL_SETTLED,
        ],
        [],
    ),
    Report(
        "elastic/beats#1349 (a byte order mark stays in the first line)",
        LIVE,
        [append("app.log", b"\xef\xbb\xbf#Software: Microsoft Exchange Server\r\nnext\r\n"), poll],
        [b"#Software: Microsoft Exchange Server", b"next"],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#14615 (UTF-16: all lines become one)",
        LIVE,
        [append("app.log", "\ufefferste Zeile\r\nzwölf 個 \U0001f600 \u0a0a\r\n".encode("utf-16-le")), poll],
        [b"erste Zeile", "zwölf 個 \U0001f600 \u0a0a".encode()],
    ),
    Report(
        "wazuh/wazuh#2584 (UTF-16 that comes in parts, cut inside a character)",
        LIVE,
        [
            append("app.log", "\ufeffone\ntwö".encode("utf-16-be")[:-1]),
            poll,
            append("app.log", "ö".encode("utf-16-be")[-1:] + "\n".encode("utf-16-be")),
            stop,
            poll,
        ],
        [b"one", "twö".encode()],
    ),
    Report(
        "fluent/fluent-bit#5382, open-telemetry/opentelemetry-collector-contrib#21893 (half a line is read)",
        LIVE,
        [
            append("app.log", b'{"a": '),
            poll,
            wait(600),
            poll,
            append("app.log", b"1}\r"),
            poll,
            append("app.log", b"\n"),
            poll,
        ],
        [b'{"a": 1}'],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#4849 (the last line of every rotated file)",
        ALL,
        [append("app.log.1", b"one\nlast"), append("app.log", b"two\n"), once],
        [b"one", b"last", b"two"],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#26691 (a last line without an end, renamed)",
        ("*.log",),
        [
            append("a.log", b"one\nlast"),
            poll,
            rename("a.log", "a-2026-01-01.log"),
            append("a.log", b"two\n"),
            poll,
            wait(GRACE_S),
            poll,
        ],
        [b"one", b"last", b"two"],
    ),
    Report(
        "grafana/loki#2678 (a single line without an end; it may still grow, the next run appends it)",
        LIVE,
        [append("app.log", b"one"), once, append("app.log", b" more\n"), once],
        [b"one more"],
    ),
    Report(
        "grafana/loki#14462 (rotated twice while the first file is still being read)",
        ALL,
        [
            append("app.log", content(FIRST)),
            rename("app.log", "app.log.1"),
            append("app.log", content(SECOND)),
            rename("app.log.1", "app.log.2"),
            rename("app.log", "app.log.1"),
            append("app.log", content(NEW)),
            poll,
        ],
        [*FIRST, *SECOND, *NEW],
    ),
    Report(
        "elastic/beats#1281, #36541 (rotated while it follows, then restarted)",
        ALL,
        [
            append("app.log", content(FIRST)),
            poll,
            rename("app.log", "app.log.1"),
            append("app.log", content(SECOND)),
            poll,
            rename("app.log.1", "app.log.2"),
            rename("app.log", "app.log.1"),
            append("app.log", content(NEW)),
            poll,
            stop,
            poll,
        ],
        [*FIRST, *SECOND, *NEW],
    ),
    Report(
        "elastic/beats#1010 (a renamed file that grows, and a successor that begins the same)",
        ("*.log",),
        [
            append("logfile.log", b"START\nROW 1\nROW 2\n"),
            poll,
            rename("logfile.log", "logfile.1.log"),
            append("logfile.log", b"START\nROW 3\nROW 4\nROW 5\n"),
            append("logfile.1.log", b"late\n"),
            stop,
            *UNTIL_SETTLED,
        ],
        [b"START", b"ROW 1", b"ROW 2", b"late", b"START", b"ROW 3", b"ROW 4", b"ROW 5"],
    ),
    Report(
        "elastic/beats#1686 (a file and a link to it match)",
        ("*.log",),
        [
            append("test-2016.log", b"Hello world\n"),
            link("test-2016.log", "test.log"),
            hard_link("test-2016.log", "z.log"),
            poll,
            stop,
            poll,
            append("test.log", b"more\n"),
            poll,
        ],
        [b"Hello world", b"more"],
    ),
    Report(
        "elastic/logstash#9276 (an editor saves the file under a new inode)",
        LIVE,
        [append("app.log", content(OLD)), poll, replace("app.log", content(OLD, NEW)), poll, stop, poll],
        [*OLD, *NEW],
    ),
    Report(
        "logstash-plugins/logstash-input-file#225 (a file is transferred again, with what is new)",
        LIVE,
        [append("app.log", content(OLD)), once, replace("app.log", content(OLD, NEW)), once],
        [*OLD, *NEW],
    ),
    Report(
        "influxdata/telegraf#7419, google/mtail#242 (a pattern with a class of characters)",
        ("2020041[!1-8]*",),
        [append("202004182350", b"no\n"), append("202004190000", b"yes\n"), poll],
        [b"yes"],
    ),
    Report(
        "fluent/fluent-bit#1552 (two asterisks are any depth)",
        ("logs/**/*.log",),
        [
            make_folder("logs"),
            make_folder("logs/a"),
            make_folder("logs/a/b"),
            append("logs/a/b/x.log", b"1\n"),
            append("logs/y.log", b"2\n"),
            poll,
        ],
        [b"1", b"2"],
    ),
    Report(
        "timberio/agent#117 (a name that is not a pattern: brackets)",
        ("app[1].log",),
        [append("app[1].log", b"one\n"), poll],
        [b"one"],
    ),
    Report(
        "logstash-plugins/logstash-input-file#70 (two patterns for one file)",
        ("a*.log", "*b.log"),
        [append("ab.log", b"one\n"), poll, append("ab.log", b"two\n"), poll],
        [b"one", b"two"],
    ),
    Report(
        "influxdata/telegraf#13154 (folders and FIFOs match)",
        ("*",),
        [make_folder("folder"), make_fifo("fifo"), append("a.log", b"one\n"), poll],
        [b"one"],
    ),
    Report(
        "fluent/fluent-bit#11265 (a stop within a line)",
        LIVE,
        [
            append("app.log", content(OLD) + b"half"),
            poll,
            stop,
            append("app.log", b" line\n"),
            poll,
            stop,
            poll,
        ],
        [*OLD, b"half line"],
    ),
    Report(
        "fluent/fluent-bit#3488 (restarts behind a line that is longer than a message)",
        LIVE,
        [
            append("app.log", content(OLD) + b"z" * (3 << 20) + b"\n" + content(NEW)),
            once,
            once,
            append("app.log", content(FIRST)),
            once,
        ],
        [*OLD, *[b"z" * (1 << 20)] * 3, *NEW, *FIRST],
    ),
    Report(
        "fluent/fluent-bit#8955 (the whole file is written again, with what is new)",
        LIVE,
        [append("app.log", content(OLD)), poll, cut("app.log"), append("app.log", content(OLD, NEW)), poll],
        [*OLD, *NEW],
    ),
    Report(
        "rsyslog/rsyslog#2229 (a link is made again, for the same file and for the next one)",
        LIVE,
        [
            append("log.1", content(OLD)),
            link("log.1", "app.log"),
            poll,
            remove("app.log"),
            poll,
            link("log.1", "app.log"),
            append("log.1", content(FIRST)),
            poll,
            remove("app.log"),
            append("log.2", content(NEW)),
            link("log.2", "app.log"),
            append("log.1", b"late\n"),
            poll,
        ],
        [*OLD, *FIRST, b"late", *NEW],
    ),
    Report(
        "elastic/beats#19634 (killed between an append and its entry)",
        LIVE,
        [append("app.log", content(FIRST)), killed("after"), append("app.log", content(NEW)), poll],
        [*FIRST, *NEW],
    ),
    Report(
        "elastic/beats#19634, with copytruncate before the next start",
        ALL,
        [
            append("app.log", b"begin\n"),
            poll,
            append("app.log", content(FIRST)),
            killed("after"),
            copy("app.log", "app.log.1"),
            cut("app.log"),
            append("app.log", content(NEW)),
            poll,
        ],
        [b"begin", *FIRST, *NEW],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#32170, #35042 (a line longer than the first buffer)",
        LIVE,
        [
            append("app.log", b"x" * 500_000),
            poll,
            append("app.log", b"x" * (1 << 19)),
            poll,
            append("app.log", b"\nnext\n"),
            poll,
        ],
        [b"x" * (500_000 + (1 << 19)), b"next"],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#31512 (a line of exactly the limit, and a character at it)",
        LIVE,
        [append("app.log", b"y" * (1 << 20) + b"\r\n" + b"z" * ((1 << 20) - 1) + "ö".encode() + b"z\n"), poll],
        [b"y" * (1 << 20), b"z" * ((1 << 20) - 1), "öz".encode()],
    ),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.reference.partition(" ")[0])
def test_each_line_is_appended_once(report: Report, tmp_path: Path) -> None:
    appended = play(Following(tmp_path, *report.patterns), report.steps)
    assert sorted(appended) == sorted(report.expected)


PACKED_OLD = gzip.compress(content(OLD))
UNREAD: list[tuple[str, list[Step], list[bytes], int]] = [
    (
        "fluent/fluent-bit#2110 (rotated twice and compressed between two looks)",
        [
            append("app.log", content(FIRST)),
            poll,
            append("app.log.2.gz", PACKED_OLD),
            rename("app.log", "app.log.3"),
            append("app.log", content(NEW)),
            poll,
        ],
        [*FIRST, *NEW],
        len(OLD),
    ),
    (
        "fluent/fluent-bit#5024 (rotated and compressed during a stop, after further lines)",
        [
            append("app.log", content(OLD[:30])),
            once,
            append("app.log.1.gz", PACKED_OLD),
            remove("app.log"),
            append("app.log", content(NEW)),
            once,
        ],
        [*OLD[:30], *NEW],
        len(OLD) - 30,
    ),
    (
        "fluent/fluent-bit#2110 (read, and compressed while it grows)",
        [
            append("app.log", content(OLD[:30])),
            poll,
            append("app.log", content(OLD[30:])),
            append("app.log.1.gz", PACKED_OLD),
            remove("app.log"),
            append("app.log", content(NEW)),
            poll,
        ],
        [*OLD, *NEW],
        0,
    ),
    (
        "open-telemetry/opentelemetry-collector-contrib#46105 (two lines more, and compressed at once)",
        [
            append("app.log", content(OLD[:2])),
            once,
            append("app.log.gz", gzip.compress(content(OLD[:4]))),
            remove("app.log"),
            append("app.log", content(NEW)),
            once,
        ],
        [*OLD[:2], *NEW],
        2,
    ),
    (
        "google/mtail#219 (archives of earlier days, and a compression that takes a while)",
        [
            append("app.log.5.gz", PACKED_OLD),
            append("app.log", content(OLD)),
            once,
            append("app.log.1.gz", PACKED_OLD[:50]),
            poll,
            append("app.log.1.gz", PACKED_OLD[50:]),
            remove("app.log"),
            append("app.log", content(NEW)),
            poll,
            stop,
            poll,
        ],
        [*OLD, *NEW],
        0,
    ),
]


@pytest.mark.parametrize(("reference", "steps", "expected", "unread"), UNREAD, ids=[row[0] for row in UNREAD])
def test_unread_lines_of_compressed_files_are_counted(
    reference: str,
    steps: list[Step],
    expected: list[bytes],
    unread: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert sorted(play(Following(tmp_path, "app.log*"), steps)) == sorted(expected), reference
    told = [record.message for record in caplog.records if "were not read" in record.message]
    assert len(told) == bool(unread)
    assert all(f": {unread} of its lines were not read" in message for message in told)
