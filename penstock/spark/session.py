"""The Spark session of Penstock: local by default, or with any master.

Start with ``build_session``. Environment and JVM options are set before the JVM starts; later changes have no effect.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import signal
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import current_thread, main_thread

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.config.keys.pipeline import check_master
from penstock.errors import PenstockError
from penstock.files.disk_space import is_disk_full
from penstock.files.file_system import OS, replace_durably
from penstock.java.runtime import cache_folder, find_java, set_locale
from penstock.process.module_search import prefers_working_folder
from penstock.spark import worker_daemon
from penstock.spark.class_archive import ClassArchive
from penstock.spark.package_zip import package_zip
from penstock.spark.versions import check_version, checkpoint_settings

DEFAULT_MASTER = "local[2,3]"
"""Two tasks at a time, three attempts each: plain ``local[2]`` never retries a task."""
_IN_PROCESS = re.compile(r"local(\[.*\])?")
_LOOPBACK = re.compile(r"spark://(localhost|127\.\d+\.\d+\.\d+|\[::1\]):.*|local-cluster\[.*\]")
DRIVER_HOST = "spark.driver.host"

SETTINGS: dict[str, str] = {
    # Times are UTC, and microseconds as other tools expect them (Spark's default is still INT96).
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Without it Spark refuses Python sources with pushFilters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Each shuffle partition costs a task.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    # Limit: what Spark's UI shows of finished work is held in the driver's memory, also without a UI: by default a
    # thousand jobs with their plans and 100,000 tasks.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.ui.retainedProgressUpdates": "10",
    "spark.sql.streaming.ui.retainedQueries": "10",
    "spark.sql.catalogImplementation": "in-memory",
}
LOCAL_SETTINGS: dict[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Paths without a scheme are local, also where HADOOP_CONF_DIR names a cluster.
    "spark.hadoop.fs.defaultFS": "file:///",
}
FOREIGN_VARIABLES = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_LOCAL_DIRS",
    "SPARK_REMOTE",
    "SPARK_API_MODE",
    "PYSPARK_SUBMIT_ARGS",
    "HADOOP_CONF_DIR",
)
"""Variables that another Spark's user sets, and that can keep this one from starting."""
LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.alwaysWriteExceptions = false
appender.stderr.layout.pattern = %d{HH:mm:ss} spark %p %c{1}: \
  %replace{%maxLen{%m%notEmpty{; %ex{1}}}{600}}{\\s*[\\r\\n]+\\s*}{; }%n
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.adaptive.name = org.apache.spark.sql.execution.streaming
logger.adaptive.level = error
logger.query.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.query.level = off
logger.query40.name = org.apache.spark.sql.execution.streaming.MicroBatchExecution
logger.query40.level = off
logger.submit.name = org.apache.spark.deploy
logger.submit.level = error
logger.scheduler.name = org.apache.spark.scheduler.DAGScheduler
logger.scheduler.filter.cancel.type = RegexFilter
logger.scheduler.filter.cancel.regex = .*Failed to cancel job group.*
logger.scheduler.filter.cancel.onMatch = deny
logger.scheduler.filter.cancel.onMismatch = neutral
"""
"""Log4j's settings: one line each, without stacks. Without the warning that adaptive execution is off for streams,
where it always is, and without the end of the query, which the pipeline reports, and whose jobs have ended before.
"""


YOUNG_GENERATION = "128m"
"""JVM memory for short-lived objects. Rows that land are not among them; by default the JVM takes a third of its memory
for them and does not return it.
"""
HOME_PARTS = ("bin", "conf", "jars", "sbin")
REQUIRED_PARTS = ("bin", "jars")
"""Folders that the JVM needs in Spark's home."""
_LOGGER = logging.getLogger(__name__)
_RETAINED_BYTES = str(128 << 20)
WORKER_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": _RETAINED_BYTES,
    "MALLOC_TRIM_THRESHOLD_": _RETAINED_BYTES,
    "MALLOC_ARENA_MAX": "2",
}
"""Environment of the Python workers. The next task reuses memory that a task frees: page faults took a seventh of the
workers' time. The system's allocator also holds less than Arrow's own.
"""


class SparkNotStarted(PenstockError, RuntimeError):
    """Spark does not start; the text names the variables that may be the cause."""


def build_session(
    settings: Mapping[str, object] | None = None,
    *,
    name: str = "penstock",
    inherit: Sequence[int] = (),
    scratch: Path | None = None,
    stderr: int | None = None,
) -> SparkSession:
    """Return a session with the settings of this module, then ``settings`` (``master`` and any key of Spark) over
    them.

    A second call in one process returns the running session. A caller's own handler of SIGINT stays.
    ``inherit``: files that the JVM keeps open, so that a lock on them is held as long as it lives. ``stderr``: file
    for the JVM's standard error, None for this process's. ``scratch``: an existing folder for temporary files, which a
    killed JVM leaves behind.

    Executors of a cluster receive this package. Their Python is ``pyspark.python``, PYSPARK_PYTHON, or this one's
    path.

    Raises NoJava, UnknownSpark, SparkNotStarted, and ValueError for a master that Spark does not know.
    """
    check_version()
    foreign = [name for name in FOREIGN_VARIABLES if name in os.environ]
    user_settings = _spark_keys(settings or {})
    master = user_settings.pop("spark.master", DEFAULT_MASTER)
    check_master(master)
    is_local = listens_on_loopback(master) and DRIVER_HOST not in user_settings
    _prepare_environment(master, user_settings.get("spark.pyspark.python"), is_local)
    local = LOCAL_SETTINGS if is_local else {}
    workers = {f"spark.executorEnv.{name}": value for name, value in WORKER_ENVIRONMENT.items()}
    daemon = _daemon_settings(master)
    options = {
        **SETTINGS,
        **checkpoint_settings(),
        **workers,
        **local,
        **daemon,
        **user_settings,
        "spark.master": master,
        "spark.app.name": name,
    }
    archive = _class_archive(options)
    archive_options, class_list = archive.use_or_record(scratch) if archive else ([], None)
    options["spark.driver.extraJavaOptions"] = _java_options(
        options.get("spark.driver.extraJavaOptions", ""), scratch, archive_options
    )
    try:
        session = _start(options, tuple(inherit), stderr, archive, class_list)
    except (PySparkException, Py4JError, OSError, TypeError) as error:  # TypeError: the JVM of another version
        if not foreign or is_disk_full(error):
            raise
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
        raise SparkNotStarted(
            f"Spark does not start: {' '.join(lines[:2])}; unset what only another Spark needs: {', '.join(foreign)}"
        ) from None
    if not _IN_PROCESS.fullmatch(master):
        session.sparkContext.addPyFile(str(package_zip()))
    return session


def _start(
    options: Mapping[str, str],
    inherit: tuple[int, ...],
    stderr: int | None,
    archive: ClassArchive | None,
    class_list: Path | None,
) -> SparkSession:
    """Start the JVM, unless it runs, and return a session."""
    # Workaround: PySpark 4.2 has no parameter for inherited files, so the gateway is launched here and handed to it.
    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        gateway = launch_gateway(conf, {"pass_fds": inherit, "stderr": stderr})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)
        if archive and class_list:
            archive.build_later(class_list, jvm_pid())
    # Spark raises for a bad statement; without this the log has the stack trace, too.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    interrupt_handler = signal.getsignal(signal.SIGINT)
    SparkContext.getOrCreate(SparkConf().setAll(list(options.items())))
    if interrupt_handler not in (signal.default_int_handler, None) and current_thread() is main_thread():
        # PySpark's handler calls the JVM while another call waits for its answer; the caller's own one stays instead.
        signal.signal(signal.SIGINT, interrupt_handler)
    builder = SparkSession.builder
    for key, value in options.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _daemon_settings(master: str) -> dict[str, str]:
    """Return the daemon that forks Python workers: Penstock's where they run with this Python, which has it."""
    # Elsewhere executors get this package with their first task, after the start of the daemon.
    is_own = _IN_PROCESS.fullmatch(master) and os.environ["PYSPARK_PYTHON"] == sys.executable
    return {"spark.python.daemon.module": worker_daemon.MODULE} if is_own else {}


def runs_in_process(master: str) -> bool:
    """Return whether driver and executors are one JVM."""
    return bool(_IN_PROCESS.fullmatch(master))


def jvm_pid() -> int:
    """Return the process id of the JVM that ``build_session`` has started."""
    return int(SparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # set by launch_gateway


def listens_on_loopback(master: str) -> bool:
    """Return whether the driver listens on loopback only, unless ``spark.driver.host`` is set.

    The master's address does not tell where the executors are: a loopback address may be the end of a tunnel.
    """
    return bool(_IN_PROCESS.fullmatch(master) or _LOOPBACK.fullmatch(master))


def _class_archive(options: Mapping[str, str]) -> ClassArchive | None:
    """Return the archive for the driver's JVM; None once it runs, and where the user chooses an archive."""
    if SparkContext._gateway is not None or "Share" in options.get("spark.driver.extraJavaOptions", ""):
        return None
    # As in the JVM's class path: Spark follows links only where it looks for its home itself.
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent.resolve()) / "jars"
    class_path = options.get("spark.driver.extraClassPath", "")
    return ClassArchive.of_jars(cache_folder(), Path(os.environ["JAVA_HOME"]), jars, class_path)


def _java_options(user_options: str, scratch: Path | None, archive_options: Sequence[str] = ()) -> str:
    """Return the options of the driver's JVM: Penstock's, then the user's."""
    options = [_logging_option(), "-XX:-UsePerfData"]  # the JVM samples these counters 20 times a second
    options += archive_options
    if "GC" not in user_options:
        options.append("-XX:+UseParallelGC")  # a quarter less CPU than the default for the landing query
    if "New" not in user_options:
        options.append(f"-XX:MaxNewSize={YOUNG_GENERATION}")
    # Java reads no TMPDIR, and fails where /tmp cannot be written.
    options.append(f"-Djava.io.tmpdir={scratch or tempfile.gettempdir()}")
    return " ".join([*(shlex.quote(option) for option in options), user_options]).strip()


def _spark_keys(settings: Mapping[str, object]) -> dict[str, str]:
    return {
        key if key.startswith("spark.") else f"spark.{key}": _setting_text(setting) for key, setting in settings.items()
    }


def _setting_text(setting: object) -> str:
    return str(setting).lower() if isinstance(setting, bool) else str(setting)


def _prepare_environment(master: str, python: str | None, is_local: bool) -> None:
    """Set the environment of the JVM and the Python workers; call it before the JVM starts."""
    set_locale()
    os.environ["JAVA_HOME"] = str(find_java().home)
    default_python = (
        sys.executable if _IN_PROCESS.fullmatch(master) else os.environ.get("PYSPARK_PYTHON", sys.executable)
    )
    os.environ["PYSPARK_PYTHON"] = python or default_python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if not prefers_working_folder():  # Spark starts the Python workers itself
        os.environ["PYTHONSAFEPATH"] = "1"
    if _IN_PROCESS.fullmatch(master) and os.environ["PYSPARK_PYTHON"] == sys.executable:
        _set_home()
    if is_local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def _set_home() -> None:
    """Set SPARK_HOME, unless the user has set it."""
    if "SPARK_HOME" not in os.environ and (home := _home_without_archives()) is not None:
        os.environ["SPARK_HOME"] = str(home)


def _home_without_archives() -> Path | None:
    """Return a home of Spark without its packed Python, so that workers import this process's; None if it cannot be
    made.

    Spark puts its packed Python first on the path. Python compiles modules from an archive at each import: 13 MB and
    0.5 s more for each of the seven processes that a landing starts.
    """
    # Resolved, so that an environment behind a link (a release that is the current one) has one, too.
    installed = Path(pyspark.__file__).parent.resolve()
    home = cache_folder() / f"spark-{pyspark.__version__}-{zlib.crc32(bytes(installed)):08x}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in HOME_PARTS:
            if (installed / name).exists():
                # Several sessions may create the home at the same time; the links are the same.
                with contextlib.suppress(FileExistsError):
                    (home / name).symlink_to(installed / name)
        # A folder of another user could lead the JVM to other jars.
        is_ours = home.stat().st_uid == os.getuid()
        return home if is_ours and all((home / name).resolve() == installed / name for name in REQUIRED_PARTS) else None
    except OSError as error:
        _LOGGER.info("Spark's processes import its archive: %s", error)
        return None


def _logging_option() -> str:
    """Return the JVM's option for its log: warnings, without those about intended settings."""
    path = cache_folder() / "log4j2.properties"
    if not path.exists() or path.read_bytes() != LOGGING.encode():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(OS, path, LOGGING.encode(), draft=f"{path.name}.{os.getpid()}")
    return f"-Dlog4j2.configurationFile={path.as_uri()}"
