"""Prints the page of features and disasters from the tests' marks: ``python -m tests.disasters``.

A test that shows what a feature does in a disaster has the mark ``survives(feature, disaster)``.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "internals" / "disasters.md"
DISASTERS = (
    *("SIGKILL", "SIGSTOP", "power cut", "full disk", "failing disk", "damaged bytes", "wrong clock", "peer away"),
    *("slow peer", "flood", "changed configuration", "other format", "foreign writer"),
)
_NO_FILES = "has no files of its own"
_ONE_SHOT = "runs once and ends"
_READS = "only reads"
_LOG_BUFFER = "shown with the log buffer, its only file"
_DELTA = "commits that a power cut tears are removed by the landing: shown with it"
_DAEMON = "a part of the log daemon: shown with the log"
_AGE = "compares no times"
_INSIDE = "has no peer"
_ONLY_WRITER = "is written by Penstock alone, under a lock"
_OWN_SPEED = "reads at its own speed"
_PIPELINE = "a thread of the pipeline: shown with the landing from the log"
_DISK = ("power cut", "full disk", "failing disk", "damaged bytes", "other format", "foreign writer")
_STATE = "its state is a checked document, which is replaced durably: shown with state files"
_FIXED = "another program's format, which versions of Penstock do not change"
UNMARKED: dict[str, dict[str, str]] = {
    "datagrams": {
        **dict.fromkeys(_DISK, _LOG_BUFFER),
        "wrong clock": "minutes are given by the log's clock: shown with the log",
        "slow peer": "datagrams have no slow senders",
    },
    "connections": {
        **dict.fromkeys(_DISK, _LOG_BUFFER),
        "wrong clock": "minutes are given by the log's clock: shown with the log",
    },
    "requests": {
        **dict.fromkeys((disaster for disaster in _DISK if disaster not in ("full disk", "failing disk")), _LOG_BUFFER),
        "wrong clock": "minutes are given by the log's clock: shown with the log",
        "peer away": "the sender repeats what was not acknowledged: shown with SIGKILL",
    },
    "tail": {
        **dict.fromkeys(("slow peer", "flood"), _OWN_SPEED),
        "changed configuration": "has only the options of its command",
        "other format": _STATE,
        "foreign writer": "the files are foreign: each test of tail",
    },
    "relay": dict.fromkeys(("power cut", "failing disk", "other format"), _STATE)
    | {
        "SIGSTOP": "entries wait in the log: shown with SIGKILL",
        "flood": _OWN_SPEED,
        "foreign writer": _ONLY_WRITER,
    },
    "log buffer": {"peer away": _INSIDE, "flood": "shown with datagrams", "foreign writer": _ONLY_WRITER},
    "handlers": {
        "power cut": _LOG_BUFFER,
        "full disk": _LOG_BUFFER,
        "failing disk": _LOG_BUFFER,
        "wrong clock": _AGE,
        "flood": "shown as slow peer",
        "other format": _LOG_BUFFER,
        "foreign writer": _ONLY_WRITER,
    },
    "log": {
        "peer away": _INSIDE,
        "slow peer": "shown with requests and the Kafka protocol",
        "foreign writer": _ONLY_WRITER,
    },
    "transactions": {
        **dict.fromkeys(("SIGSTOP", "slow peer", "flood", "changed configuration"), _DAEMON),
        "foreign writer": _ONLY_WRITER,
    },
    "cursors": {
        **dict.fromkeys(
            ("SIGSTOP", "failing disk", "peer away", "slow peer", "flood", "changed configuration"), _DAEMON
        ),
        "wrong clock": _AGE,
        "foreign writer": _ONLY_WRITER,
    },
    "client": dict.fromkeys(
        (*_DISK, "changed configuration"),
        _NO_FILES,
    )
    | {"wrong clock": _AGE},
    "Kafka protocol": dict.fromkeys(
        ("SIGSTOP", "power cut", "full disk", "wrong clock", "changed configuration", "other format"), _DAEMON
    )
    | {"peer away": "clients repeat what was not acknowledged: shown with SIGKILL", "foreign writer": _ONLY_WRITER},
    "large messages": dict.fromkeys(("power cut", "full disk", "failing disk", "damaged bytes"), "Kafka stores them")
    | dict.fromkeys(("SIGSTOP", "changed configuration"), "a library in the process of its user")
    | {
        "wrong clock": _AGE,
        "slow peer": _OWN_SPEED,
        "other format": _FIXED,
        "foreign writer": "Kafka's own clients write the records in each test",
    },
    "ledger": dict.fromkeys(("SIGSTOP", "failing disk", "peer away", "slow peer", "flood"), _DAEMON)
    | {
        "power cut": "its posts are entries of the log, and its checkpoint is rebuilt",
        "foreign writer": _ONLY_WRITER,
    },
    "hosts": dict.fromkeys(("SIGSTOP", "failing disk", "slow peer", "changed configuration"), _DAEMON)
    | {"power cut": _STATE, "full disk": _STATE, "foreign writer": _ONLY_WRITER},
    "landing from the log": {"flood": _OWN_SPEED, "slow peer": _OWN_SPEED},
    "landing from Kafka": {
        "flood": _OWN_SPEED,
        "slow peer": _OWN_SPEED,
        **dict.fromkeys(
            ("SIGSTOP", *_DISK, "wrong clock", "changed configuration"), "one code with the landing from the log"
        ),
    },
    "typed tables and contracts": dict.fromkeys(
        ("SIGSTOP", "power cut", "full disk", "failing disk", "peer away", "flood", "slow peer"),
        "written in the batch of the landing: shown with it",
    )
    | {"wrong clock": _AGE},
    "merge, deletion, restore": {"SIGSTOP": _PIPELINE, "power cut": _DELTA, "slow peer": _INSIDE} | {"flood": _INSIDE},
    "Iceberg mirror": {"power cut": _DELTA, "flood": _INSIDE, "wrong clock": _AGE, "slow peer": "shown as peer away"}
    | {"SIGSTOP": _PIPELINE, "other format": _FIXED}
    | dict.fromkeys(("full disk", "failing disk"), "a failed step is reported and tried again: shown as peer away"),
    "promotion to Kafka": dict.fromkeys(
        ("SIGSTOP", "wrong clock", "flood", "changed configuration", "other format"), _ONE_SHOT
    )
    | dict.fromkeys(("peer away", "slow peer"), "ends, and its repetition copies the rest: shown with SIGKILL"),
    "backup": dict.fromkeys(
        ("SIGSTOP", "wrong clock", "peer away", "slow peer", "flood", "changed configuration"), _ONE_SHOT
    ),
    "export": dict.fromkeys(("power cut", "full disk", "failing disk", "other format"), _STATE)
    | {"SIGSTOP": _PIPELINE, "flood": _OWN_SPEED, "wrong clock": _AGE},
    "audit": dict.fromkeys(("SIGKILL", "SIGSTOP", "power cut", "full disk", "failing disk"), _READS)
    | dict.fromkeys(("slow peer", "flood", "changed configuration"), _ONE_SHOT),
    "alarms": dict.fromkeys(("power cut", "failing disk"), _STATE)
    | {"SIGSTOP": _DAEMON, "flood": "alarms of one kind are one alarm", "foreign writer": _ONLY_WRITER},
    "SQL": dict.fromkeys(("SIGSTOP", "power cut", "full disk", "wrong clock"), _READS),
    "state files": dict.fromkeys(("peer away", "slow peer", "flood"), _INSIDE)
    | {
        "SIGKILL": "less than a power cut",
        "SIGSTOP": "no reader waits for a writer",
        "wrong clock": _AGE,
        "changed configuration": "have no settings",
        "foreign writer": _ONLY_WRITER,
    },
    "supervisor": dict.fromkeys(("peer away", "slow peer", "flood"), _INSIDE)
    | {"power cut": "its files are those of one run", "foreign writer": _ONLY_WRITER},
}
"""Each feature, and the disasters that no test of it is marked with: why."""


class Mark(NamedTuple):
    """A mark of the test ``name`` in the file ``path``."""

    feature: str
    disaster: str
    path: Path
    name: str


def marks() -> Iterator[Mark]:
    """Yield the marks of all tests, in the order of their files. Raises SyntaxError."""
    for path in sorted(TESTS.rglob("test_*.py")):
        if "mark.survives(" in (text := path.read_text()):
            for function in ast.parse(text).body:
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _marks_of(function, path)


def _marks_of(function: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> Iterator[Mark]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.survives":
            feature, disaster = map(ast.literal_eval, decorator.args)
            yield Mark(feature, disaster, path, function.name)


def page() -> str:
    """Return the page in Markdown."""
    tests: dict[tuple[str, str], list[Mark]] = defaultdict(list)
    for mark in marks():
        tests[mark.feature, mark.disaster].append(mark)
    lines = [
        "# Features and disasters",
        "",
        "For each feature and disaster: the number of tests that show what happens, `-` where it cannot happen or is",
        "shown elsewhere (the reasons are below), and **open** where no test is known. Some tests show several cells.",
        "Generated from the marks of the tests by `python -m tests.disasters`.",
        "",
        f"| | {' | '.join(DISASTERS)} |",
        f"| --- |{' --- |' * len(DISASTERS)}",
    ]
    for feature, reasons in UNMARKED.items():
        cells = [
            str(len(found)) if (found := tests[feature, disaster]) else "-" if disaster in reasons else "**open**"
            for disaster in DISASTERS
        ]
        lines.append(f"| {feature} | {' | '.join(cells)} |")
    for feature, reasons in UNMARKED.items():
        lines += ["", f"## {feature[:1].upper()}{feature[1:]}", ""]
        for disaster in DISASTERS:
            for mark in tests[feature, disaster]:
                name = mark.name.removeprefix("test_").replace("_", " ")
                lines.append(f"- {disaster}: {name} (`{mark.path.relative_to(TESTS.parent)}`)")
        by_reason: dict[str, list[str]] = defaultdict(list)
        for disaster in DISASTERS:
            if disaster in reasons:
                by_reason[reasons[disaster]].append(disaster)
        lines += [f"- Not here: {', '.join(disasters)}: {reason}." for reason, disasters in by_reason.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
