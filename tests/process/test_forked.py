"""A forked child is like a new process: it inherits only loaded code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

# Forked by a process of its own: where tests run, there are threads.
PARENT = """
import atexit, json, os, signal, sys, time
from pathlib import Path
from penstock.process.forked import Forked, terminate
import shared
shared.loaded = "by the parent"
signal.signal(signal.SIGTERM, lambda *_: print("a parent's handler", flush=True))
atexit.register(print, "the parent ends")
secret = os.open("/dev/null", os.O_RDONLY)
inherited = os.open("/dev/null", os.O_RDONLY)
print("said before", end="")
output = open(sys.argv[2], "ab")
task = {"text": "x" * 200_000, "inherited": inherited}
child = Forked("childs", ["1", sys.argv[1]], task, [inherited], output, "a title")
ACTION
print(json.dumps({"status": child.wait(20), "again": child.poll()}), flush=True)
"""
CHILD = """
import atexit, json, os, signal, sys, threading, time
import shared
def main():
    task = json.load(sys.stdin)
    report = {"argv": sys.argv, "length": len(task["text"]), "loaded": shared.loaded}
    report["term"] = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    report["mask"] = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    descriptors = {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2}
    report["open"] = sorted(fd for fd in descriptors if os.path.exists(f"/proc/self/fd/{fd}")) == [task["inherited"]]
    report["title"] = open("/proc/self/cmdline").read().rstrip(chr(0))
    print(json.dumps(report), flush=True)
    ACTION
"""
STATUSES = {
    "return": 0,
    "sys.exit(3)": 3,
    "sys.exit('because')": 1,
    "raise ValueError('unexpected')": 1,
    "threading.Thread(target=lambda: (time.sleep(0.2), print('a thread ends'))).start()": 0,
    "atexit.register(print, 'the child ends')": 0,
    "os.kill(os.getpid(), 9)": -9,
    "time.sleep(30)": -15,
}
OUTPUTS = {
    "sys.exit('because')": "because",
    "raise ValueError('unexpected')": "ValueError: unexpected",
    "threading.Thread(target=lambda: (time.sleep(0.2), print('a thread ends'))).start()": "a thread ends",
    "atexit.register(print, 'the child ends')": "the child ends",
}


def run(folder: Path, ends: str) -> tuple[dict[str, Any], list[str], str]:
    """Return the report of the child, the rest of its output, and the output of its parent."""
    waits = 'while not Path(sys.argv[2]).read_text().endswith("\\n"): time.sleep(0.01)\nterminate(child)'
    (folder / "shared.py").write_text("loaded = None\n")
    (folder / "childs.py").write_text(CHILD.replace("ACTION", ends))
    code = PARENT.replace("ACTION", waits if "sleep(30)" in ends else "")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", code, "again", str(folder / "output")]
    process = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=environment)
    first, *rest = (folder / "output").read_text().splitlines()
    return json.loads(first), rest, process.stdout


@pytest.mark.parametrize("ends", STATUSES)
def test_child_has_only_its_task_and_loaded_code_and_ends_normally(tmp_path: Path, ends: str) -> None:
    report, rest, parents = run(tmp_path, ends)
    assert report == {
        "argv": ["childs", "1", "again"],
        "length": 200_000,
        "loaded": "by the parent",
        "term": True,
        "mask": [],
        "open": True,
        "title": "childs: a title",
    }
    assert OUTPUTS.get(ends, "") in "\n".join(rest)
    assert bool(rest) == (ends in OUTPUTS)
    report_line, _, end = parents.partition("\n")
    assert json.loads(report_line.removeprefix("said before")) == {"status": STATUSES[ends], "again": STATUSES[ends]}
    assert end == "the parent ends\n"


INTERRUPTED = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
"""A module during whose import Ctrl-C arrives."""


def test_interrupt_leaves_a_child_that_loads_its_code_to_the_parent(tmp_path: Path) -> None:
    (tmp_path / "childs.py").write_text(f"{INTERRUPTED}\ndef main(): print('runs')\n")
    code = "from penstock.process.forked import Forked; print(Forked('childs', [], {}, [], None, 'title').wait(20))"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert (process.stdout, process.stderr) == ("runs\n0\n", "")


WAITS = """
import subprocess, sys
from penstock.process.forked import Forked, terminate
child = Forked("childs", [], {"text": "", "inherited": 0}, [], open(sys.argv[2], "ab"), "title")
try:
    child.wait(0.2)
except subprocess.TimeoutExpired:
    child.kill()
    print(child.wait())
terminate(child)
"""


def test_wait_ends_at_its_timeout(tmp_path: Path) -> None:
    (tmp_path / "childs.py").write_text("import time\ndef main():\n    time.sleep(30)\n")
    command = [sys.executable, "-c", WAITS, "", str(tmp_path / "output")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    began = time.monotonic()
    process = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=environment)
    assert process.stdout == f"{-signal.SIGKILL}\n"
    assert time.monotonic() - began < 20


IGNORES = """
import os, signal, sys, time
from penstock.process.forked import Forked
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = Forked("childs", [], {}, [], None, "title")
assert child.poll() is None
os.kill(child.pid, signal.SIGKILL)
print(child.wait(20))
"""


def test_ignored_sigchld_counts_as_status_zero(tmp_path: Path) -> None:
    (tmp_path / "childs.py").write_text("import time\ndef main():\n    time.sleep(30)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", IGNORES]
    process = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=environment)
    assert process.stdout == "0\n"


def test_child_that_fails_before_main_prints_the_cause(tmp_path: Path) -> None:
    code = "import os\nfrom penstock.process import forked\nforked.setproctitle = None\n"
    code += "print(forked.Forked('childs', [], {}, [], None, 'title').wait(20))"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert process.stdout == "70\n"
    assert "TypeError" in process.stderr


def test_failed_import_ends_with_its_status(tmp_path: Path) -> None:
    (tmp_path / "childs.py").write_text("import sys\nsys.exit('this machine lacks it')\n")
    code = "from penstock.process.forked import Forked\n"
    code += "print(Forked('childs', [], {}, [], None, 'title').wait(20))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=environment)
    assert (process.stdout, process.stderr) == ("1\n", "this machine lacks it\n")


CLOSED = """
import os, sys
sys.stdout = sys.stderr = None
from penstock.process.forked import Forked
os._exit(Forked("childs", [], {}, [], None, "title").wait(20))
"""


def test_child_runs_without_standard_streams(tmp_path: Path) -> None:
    (tmp_path / "childs.py").write_text("import sys\ndef main():\n    sys.exit(4)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", CLOSED], timeout=60, env=environment, check=False).returncode == 4
