"""Configuration of all tests: one real Kafka broker for the whole run, and property tests without a deadline."""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import os
import re
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from penstock.java.jars import CannotFetch
from penstock.java.runtime import NoJava
from penstock.kafka.broker import Broker
from penstock.process.kernel import raise_file_limit
from tests.system.containers import NONE, builder

pytest_plugins = ["tests.shared_fixtures"]

# The machine may be busy, and a change that is right is not to fail by what was drawn: `make fuzz` looks for more.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=10_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


MAX_DESCRIPTORS = 400
"""Open files of this process that tests may add before unreachable ones are looked for."""
_remaining = [0]
"""Open files that the last collection left."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped fails")


QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""Option of JVMs that live too shortly for the best machine code to pay: half the CPU of a short run."""


def pytest_configure() -> None:
    """Raise the limit of open files as Penstock's processes do: one test in this process may open over 1,024. Let
    each Spark that a test starts, in this process or another one, compile quickly, and let processes that tests start
    find the modules compiled.
    """
    raise_file_limit()
    # Where an image sets this variable, each of some thousand processes would compile 250 modules: 0.3 s of its second.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        sys.dont_write_bytecode = False
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(name, QUICK_JAVA)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where everything has to run."""
    report = yield
    if report.skipped and item.config.getoption("no_skips"):
        report.outcome = "failed"
        report.longrepr = f"skipped: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _few_descriptors() -> Iterator[None]:
    """Free the files of log buffers that only reference cycles keep: many machines allow 1,024 at once."""
    yield
    # A collection takes a second in a process with a million objects: not after each test for files that stay open.
    if len(os.listdir("/proc/self/fd")) > _remaining[0] + MAX_DESCRIPTORS:
        gc.collect()
        _remaining[0] = len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """Undo the logging configuration of a test's process."""
    loggers = [logging.getLogger(name) for name in (None, "penstock", "__main__")]
    before = [(logger.handlers[:], logger.level) for logger in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers = handlers
        logger.setLevel(level)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker on a free port (``.address``), started by the first test that needs it and stopped after the
    last.
    """
    settings = {"log.cleaner.backoff.ms": "250"}  # compaction within a second instead of 15
    folder = tmp_path_factory.mktemp("kafka") / "broker"
    broker = Broker(folder, memory="256m", options=(QUICK_JAVA,), settings=settings)
    try:
        broker.start()
    except (NoJava, CannotFetch) as error:
        pytest.skip(str(error))
    yield broker
    broker.stop()


LEFT_OUT = pytest.StashKey[bool]()
LONGEST_FIRST = ("system", "spark", "landing", "upkeep", "proof", "kafka", "cli")
"""Rooms whose tests take minutes: all processes end together when these begin early, after shared services."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run long rooms first; deselect container builds without a builder, and report that in the summary."""
    needing = [item for item in items if item.get_closest_marker("container")]
    if needing and not builder():
        config.hook.pytest_deselected(items=needing)
        config.stash[LEFT_OUT] = True
        items[:] = [item for item in items if item not in needing]
    order = {room: number for number, room in enumerate(LONGEST_FIRST)}

    def key(item: pytest.Item) -> tuple[bool, int]:
        file, _, _ = item.nodeid.partition("::")
        return shared_service(file) is None, order.get(Path(file).parts[1], len(order))

    items.sort(key=key)


def pytest_collection(session: pytest.Session) -> None:
    """Begin the import of the tests at another file in each process: what one has compiled with pytest's assertions,
    20 s of CPU in a new checkout, the others then read.
    """
    config = session.config
    if (worker := getattr(config, "workerinput", None)) is None:
        return
    gc.disable()  # until `pytest_collection_finish`: a tenth of the CPU, for objects that stay
    folders = [config.invocation_params.dir / argument for argument in config.args]
    files = sorted(path for folder in folders for path in folder.rglob("test_*.py"))
    number = int(str(worker["workerid"]).removeprefix("gw"))
    first = len(files) * number // int(worker["workercount"])
    for file in [*files[first:], *files[:first]]:
        with suppress(Exception):  # the collection that follows reports it
            importlib.import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Leave the 12,000 collected tests and their modules out of garbage collections: each took half a second."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report tests that cannot run on this machine and are not skips: the project cannot install their programs."""
    of_several_processes = bool(getattr(config.option, "numprocesses", None))  # these collect, and tell nobody
    if (LEFT_OUT in config.stash or of_several_processes) and not builder():
        terminalreporter.write_line(NONE, yellow=True)


SHARED = {
    "spark": re.compile(r"\bspark: SparkSession"),
    "foreign spark": re.compile(r"\bforeign_spark\b"),
    "kafka": re.compile(r"\bkafka_broker\b|\btopics: Topics\b"),
}
"""What in a file's text shows that its tests use a Spark session or the Kafka broker of the run, ten seconds each to
start.
"""


@functools.cache
def shared_service(file: str) -> str | None:
    """Return the shared service that the tests of a file use; Spark if both, as it takes longer to start."""
    text = (Path(__file__).parents[1] / file).read_text()
    service = next((service for service, use in SHARED.items() if use.search(text)), None)
    # All tests with Kafka take a quarter of an hour one by one, those of the audit half of it: each half has a broker.
    return "kafka of the audit" if service == "kafka" and file.startswith("tests/audit/") else service


class OneWorkerPerService(LoadScopeScheduling):
    """Scheduler for `pytest -n`: one process runs all tests of a file, and all tests that share a started service."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return shared_service(file) or file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneWorkerPerService:
    """Return the scheduler above for each value of --dist."""
    return OneWorkerPerService(config, log)
