"""A journal in a folder, and a program that reads it with the command line and the output of journalctl."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from pathlib import Path

FOLDER = "JOURNAL_OF_THE_TEST"
"""Variable with the folder that the program reads."""
SOURCE, BOOT = "abfeb38e9f984b23b48ae2694f438765", "558938e463884a999f7790617f94c4d0"
FIRST_MICROS = 1795734455088279
ACCESS_HINT = "Hint: You are currently not seeing messages from other users and the system."

PROGRAM = r"""
import base64, json, os, re, select, sys, time
from pathlib import Path

folder, options = Path(os.environ["JOURNAL_OF_THE_TEST"]), sys.argv[1:]
(folder / "calls").open("a").write(" ".join(options) + "\n")
value = {name: text for name, _, text in (option.partition("=") for option in options)}
assert value["--output"] == "export"
if (folder / "hint").exists():
    print((folder / "hint").read_text(), file=sys.stderr, flush=True)
PARTS = re.compile("".join(f"{name}=(?P<{name}>[0-9a-f]+);" for name in "sibmt"))
cursor = value.get("--cursor")
begin = PARTS.match(cursor or "")
if cursor is not None and begin is None:
    sys.exit("Failed to seek to cursor: Invalid argument")
position = ("", 0)


def is_wanted(cursor):
    # As sd_journal_seek_cursor: by number within a source, in a boot by its clock, else by the time of day.
    place = PARTS.match(cursor)
    if begin is None:
        return True
    key = "i" if place["s"] == begin["s"] else "m" if place["b"] == begin["b"] else "t"
    return int(place[key], 16) >= int(begin[key], 16)


def unread():
    global position
    for path in sorted(folder.glob("*.journal")):
        if path.name < position[0]:
            continue
        with path.open("rb") as file:
            file.seek(position[1] if path.name == position[0] else 0)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                position = path.name, (position[1] if path.name == position[0] else 0) + len(line)
                yield json.loads(line)


def selected():
    for entry in unread():
        if is_wanted(entry["cursor"]) and (entry["unit"] == value["--unit"] if "--unit" in value else True):
            if "--boot" not in options or entry["boot"] == (folder / "boot").read_text():
                yield base64.b64decode(entry["export"])


def write(data):
    for begin in range(0, len(data), 1000):
        os.write(1, data[begin : begin + 1000])


if value.get("--lines") == "1":
    exports = list(selected())
    write(b"".join(exports[-1:] if cursor is None else exports[:1]))
    sys.exit()
written = 0
while True:
    for export in selected():
        write(export)
        written += 1
    if "--follow" not in options:
        if not written:
            write(b"-- No entries --\n")
        break
    poll = select.poll()
    poll.register(1, 0)
    if poll.poll(10):
        break
"""


class Journal:
    """Writes entries as journald does: numbered in turn, into files that are rotated, and removed by vacuum."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written, self._files, self.boot = folder, 0, 1, BOOT
        self._source, self._seconds_ahead = SOURCE, 0
        folder.mkdir()
        (folder / "boot").write_text(BOOT)

    @property
    def program(self) -> str:
        """An executable that plays journalctl."""
        path = self.folder / "journalctl"
        if not path.exists():
            path.write_text(f"#!{sys.executable} -ES\n{PROGRAM}")
            path.chmod(0o755)
        return str(path)

    @property
    def calls(self) -> list[str]:
        """The options of each start of the program, without looks at one entry."""
        path = self.folder / "calls"
        calls = path.read_text().splitlines() if path.exists() else []
        return [call for call in calls if "--lines=1" not in call]

    def write(self, message: bytes, unit: str = "a.service") -> None:
        self.written += 1
        number = self.written
        cursor = cursor_of(number, self._source, self.boot, FIRST_MICROS + self._seconds_ahead * 1_000_000 + number)
        export = export_of(number, message, unit=unit, boot=self.boot, cursor=cursor)
        entry = {"cursor": cursor, "unit": unit, "boot": self.boot, "export": b64encode(export).decode()}
        with (self.folder / f"{self._files:04d}.journal").open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")

    def rotate(self) -> None:
        self._files += 1

    def vacuum(self) -> None:
        """Remove all files but the one that is written to."""
        for path in sorted(self.folder.glob("*.journal")):
            if path.name < f"{self._files:04d}":
                path.unlink()

    def reboot(self) -> None:
        self.boot = f"{int(self.boot, 16) + 1:032x}"
        (self.folder / "boot").write_text(self.boot)

    def begin_again(self, seconds_ahead: int) -> None:
        """Remove all entries and reboot, as with a journal in memory; the clock is ``seconds_ahead`` from then on."""
        self.rotate()
        self.vacuum()
        self.reboot()
        self._source, self._seconds_ahead = f"{int(self._source, 16) + 1:032x}", seconds_ahead

    def lose_power(self, entries: int) -> None:
        """Lose the newest entries and reboot; numbers go on behind the last entry on the disk, as since systemd 253."""
        path = self.folder / f"{self._files:04d}.journal"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-entries]))
        self.written -= entries
        self.rotate()
        self.reboot()
        self._seconds_ahead += 60

    def deny_access(self) -> None:
        (self.folder / "hint").write_text(ACCESS_HINT)


def cursor_of(number: int, source: str = SOURCE, boot: str = BOOT, micros: int = 0) -> str:
    """Return the cursor of an entry; ``micros`` 0: by a clock that is right."""
    time = micros or FIRST_MICROS + number
    return f"s={source};i={number:x};b={boot};m={1000 + number:x};t={time:x};x={number * 7919:x}"


def field(name: str, content: bytes) -> bytes:
    """Return a field as journalctl writes it: as text, or as bytes with their length."""
    if all(octet >= ord(" ") or octet == ord("\t") for octet in content):
        return name.encode() + b"=" + content + b"\n"
    return name.encode() + b"\n" + len(content).to_bytes(8, "little") + content + b"\n"


def export_of(
    number: int, message: bytes | None, *, unit: str = "a.service", boot: str = BOOT, cursor: str = ""
) -> bytes:
    """Return an entry as journald 252 and journalctl export it."""
    texts = {
        "__CURSOR": cursor or cursor_of(number, boot=boot),
        "__REALTIME_TIMESTAMP": str(FIRST_MICROS + number),
        "__MONOTONIC_TIMESTAMP": str(1000 + number),
        "_BOOT_ID": boot,
        "_UID": "0",
        "_GID": "0",
        "_CAP_EFFECTIVE": "1fffeffffff",
        "_HOSTNAME": "web-1",
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "shop",
        "_TRANSPORT": "journal",
        "_PID": "12",
        "_SYSTEMD_UNIT": unit,
    }
    fields = [field(name, text.encode()) for name, text in texts.items()]
    return b"".join(fields) + (b"" if message is None else field("MESSAGE", message)) + b"\n"
