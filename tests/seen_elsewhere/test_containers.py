"""Public reports on readers of container logs and of systemd's journal: the lines or fields, and the messages."""

from __future__ import annotations

import pytest

from tests.client.tail.test_container_logs import entries_of
from tests.client.tail.test_journal_export import read

TIME = "2018-08-06T10:33:50.916508402Z"


def cri(stream: str, tag: str, text: bytes) -> bytes:
    return f"{TIME} {stream} {tag} ".encode() + text


def docker(log: bytes, stream: bytes = b"stdout") -> bytes:
    """Return a line of Docker; ``log`` is the inside of a JSON string."""
    return b'{"log":"%b","stream":"%b","time":"%b"}' % (log, stream, TIME.encode())


WITHOUT_LOG = b'{"stream":"stdout","time":"%b"}' % TIME.encode()
LINES: list[tuple[str, list[bytes], list[tuple[bytes, str | None]]]] = [
    (
        "fluent/fluent-bit#4387 (pieces of two streams in turn)",
        [
            cri("stdout", "F", b"A"),
            cri("stdout", "P", b"C one, "),
            cri("stdout", "P", b"two, "),
            cri("stderr", "P", b"D one, "),
            cri("stdout", "F", b"three"),
            cri("stderr", "F", b"two"),
        ],
        [(b"A", "stdout"), (b"C one, two, three", "stdout"), (b"D one, two", "stderr")],
    ),
    (
        "fluent/fluent-bit#1595 (a line of stderr between pieces)",
        [docker(b"very"), docker(b" long "), docker(rb"ERR message\n", b"stderr"), docker(rb"message\n")],
        [(b"ERR message", "stderr"), (b"very long message", "stdout")],
    ),
    (
        "grafana/loki#2281, moby/moby#34620 (pieces of JSON)",
        [
            cri("stdout", "P", b'{"a":'),
            cri("stdout", "P", b" "),
            cri("stdout", "F", b"1}"),
            cri("stdout", "F", b"short"),
        ],
        [(b'{"a": 1}', "stdout"), (b"short", "stdout")],
    ),
    (
        "elastic/beats#11464 (an entry without text ended the reader)",
        [docker(rb"Hello from Docker! \n"), WITHOUT_LOG, docker(rb"b\n")],
        [(b"Hello from Docker! ", "stdout"), (WITHOUT_LOG, None), (b"b", "stdout")],
    ),
    (
        "elastic/beats#10957 (Docker's format after the other one)",
        [cri("stdout", "F", b"a"), docker(rb"10.50.131.251 \"GET /status\"\n"), cri("stderr", "F", b"c")],
        [(b"a", "stdout"), (b'10.50.131.251 "GET /status"', "stdout"), (b"c", "stderr")],
    ),
    (
        "elastic/beats#8203 (a piece that is JSON with escapes)",
        [docker(rb"ncies\\\" : [ {\\n   \\\"id"), docker(rb"\" : 1 }\n")],
        [(rb'ncies\" : [ {\n   \"id" : 1 }', "stdout")],
    ),
    (
        "fluent/fluent-bit#468 (escaped line breaks)",
        [docker(rb"{\"message\":\"\\nFailed\\n\"}\n")],
        [(rb'{"message":"\nFailed\n"}', "stdout")],
    ),
    (
        "fluent/fluent-bit#4491 (terminal colours, and CR LF)",
        [docker(rb"\u001b[90mquery:\u001b[39m \"a\"\r\n")],
        [(b'\x1b[90mquery:\x1b[39m "a"', "stdout")],
    ),
    (
        "fluent/fluent-bit#5035, #2142 (text behind bytes that are not UTF-8)",
        [cri("stdout", "F", b"Estagi\xe1rio visualizou o processo")],
        [(b"Estagi\xe1rio visualizou o processo", "stdout")],
    ),
    (
        "containerd/containerd#4813 (the last line of a container has no newline)",
        [cri("stdout", "F", b"one"), cri("stdout", "P", b"Hello from init container!")],
        [(b"one", "stdout"), (b"Hello from init container!", "stdout")],
    ),
    (
        "containers/conmon#563, podman-container-tools/podman#14477 (pieces with blanks, an empty line, a last piece)",
        [
            cri("stdout", "F", b""),
            cri("stdout", "P", b"  * link[/opt/x] action create"),
            cri("stdout", "F", b" (up to date)"),
            cri("stdout", "P", b"  * directory"),
        ],
        [(b"", "stdout"), (b"  * link[/opt/x] action create (up to date)", "stdout"), (b"  * directory", "stdout")],
    ),
    (
        "vmware-archive/kube-fluentd-operator#301, cri-o/cri-o#5392 (a piece of JSON is not Docker's format)",
        [cri("stdout", "P", b'{"log":"a","stream":"stdout",'), cri("stdout", "F", b'"time":"x"}')],
        [(b'{"log":"a","stream":"stdout","time":"x"}', "stdout")],
    ),
    (
        "fluent/fluent-bit#2733 (a runtime that ends each piece with a newline wrote lines)",
        [docker(rb"first part\n", b"stderr"), docker(rb"second part\n", b"stderr")],
        [(b"first part", "stderr"), (b"second part", "stderr")],
    ),
    (
        "elastic/beats#8257 (the format before tags, and further tags: the first word of a text is no tag)",
        [
            f"{TIME} stdout The content".encode(),
            f"{TIME} stdout Failed".encode(),
            cri("stderr", "P:a", b"one, "),
            cri("stderr", "F:b:c", b"two"),
        ],
        [
            (f"{TIME} stdout The content".encode(), None),
            (f"{TIME} stdout Failed".encode(), None),
            (b"one, two", "stderr"),
        ],
    ),
    (
        "moby/moby#53631, #29511, docker/for-linux#140 (power failed: half an entry and NULs in front of the next)",
        [docker(rb"a\n"), b'{"log":"b\\n","str' + b"\0" * 9 + docker(rb"c\n"), docker(rb"d\n")],
        [(b"a", "stdout"), (b'{"log":"b\\n","str' + b"\0" * 9 + docker(rb"c\n"), None), (b"d", "stdout")],
    ),
    (
        "kubernetes/enhancements#4643 (a last piece of the other stream ends nothing)",
        [
            cri("stdout", "P", b"one "),
            cri("stdout", "P", b"two "),
            cri("stderr", "F", b"other"),
            cri("stdout", "F", b"3"),
        ],
        [(b"other", "stderr"), (b"one two 3", "stdout")],
    ),
    (
        "elastic/beats#37741, grafana/loki#2920, #4392 (entries without a newline are pieces of one line)",
        [docker(b"This is a log"), docker(b"z" * 20000), docker(rb"{\"a\":null}\n")],
        [(b"This is a log" + b"z" * 20000 + b'{"a":null}', "stdout")],
    ),
]


@pytest.mark.parametrize(("reference", "lines", "expected"), LINES, ids=[row[0] for row in LINES])
def test_lines_of_containers_give_the_messages_of_their_programs(
    reference: str, lines: list[bytes], expected: list[tuple[bytes, str | None]]
) -> None:
    assert [entry[:2] for entry in entries_of(*lines)] == expected, reference


HEAD = b"__CURSOR=s=bcce4fb8ffcb40e9a6e05eee8b7831bf;i=1;b=ec25d6795f0645619ddac9afdef453ee;m=1;t=1;x=1\n"


def binary(name: bytes, content: bytes) -> bytes:
    return name + b"\n" + len(content).to_bytes(8, "little") + content + b"\n"


ENTRIES: list[tuple[str, bytes, list[bytes], dict[str, str]]] = [
    ("vectordotdev/vector#1714 (CR at the end)", binary(b"MESSAGE", b"     y\r"), [b"     y\r"], {}),
    ("open-telemetry/opentelemetry-collector-contrib#35964", binary(b"MESSAGE", b"Hello!\r"), [b"Hello!\r"], {}),
    (
        "elastic/beats#40479 (output of a shell as a list of numbers)",
        binary(b"MESSAGE", b"\x1b[?2004l\rexit\r"),
        [b"\x1b[?2004l\rexit\r"],
        {},
    ),
    (
        "vectordotdev/vector#2601 (text that is not UTF-8)",
        binary(b"MESSAGE", b"regelverst\xf6\xdfe gefunden") + b"SYSLOG_IDENTIFIER=java\n",
        [b"regelverst\xf6\xdfe gefunden"],
        {"app_name": "java"},
    ),
    (
        "systemd/systemd#16202 (a blank line inside a field ends no entry)",
        binary(b"_SELINUX_CONTEXT", b"unconfined\n") + b"MESSAGE=session closed\nSYSLOG_IDENTIFIER=CRON\n",
        [b"session closed"],
        {"app_name": "CRON"},
    ),
    ("systemd/systemd#24112 (text behind a NUL)", binary(b"MESSAGE", b"a\0b"), [b"a\0b"], {}),
    (
        "lucab/libsystemd-rs#70, systemd/slog-journal#16 (several lines)",
        binary(b"MESSAGE", b"one\n\nMESSAGE=two\n") + b"PRIORITY=3\n",
        [b"one\n\nMESSAGE=two\n"],
        {"severity": "err"},
    ),
    (
        "moby/moby#32970, containers/conmon#335 (a piece of a line says so)",
        b"CONTAINER_PARTIAL_MESSAGE=true\nCONTAINER_PARTIAL_ORDINAL=1\nCONTAINER_NAME=web\nMESSAGE=begin\n",
        [b"begin"],
        {"partial_message": "true", "partial_ordinal": "1", "container_name": "web"},
    ),
    ("systemd/systemd#40263 (no message)", b"PRIORITY=6\n_PID=7\n", [b""], {"severity": "info", "procid": "7"}),
    ("wazuh/wazuh#26748 (no identifier)", b"MESSAGE=starting\n_PID=7\n", [b"starting"], {"procid": "7"}),
]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("reference", "fields", "messages", "annotations"), ENTRIES, ids=[row[0] for row in ENTRIES])
def test_entry_of_the_journal_is_one_message(
    reference: str, fields: bytes, messages: list[bytes], annotations: dict[str, str], size: int
) -> None:
    next_entry = HEAD.replace(b";i=1;", b";i=2;") + b"MESSAGE=next\n\n"
    payloads, all_annotations = read(HEAD + fields + b"\n" + next_entry, size)
    assert payloads == [*messages, b"next"], reference
    assert dict(all_annotations[0]).items() >= annotations.items()
