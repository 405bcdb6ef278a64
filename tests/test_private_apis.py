"""Private names of libraries that Penstock uses: one table, checked against the installed releases.

A private name may change in any release, so each library in the table has an upper bound in pyproject.toml. To raise a
bound: install the new release, run this file, and read what each failing row names.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import tomllib
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import grpc
import pyspark
import pytest
import typer
import uvicorn
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from uvicorn.server import ServerState

from penstock.process.servers.http_connection import LimitedProtocol
from penstock.spark.versions import checkpoint_settings

ROOT = Path(__file__).parents[1]
PYTHON = "Python"


class PrivateApi(NamedTuple):
    """A private name, or a public one that no documentation promises.

    ``parameters``: the ones that Penstock passes or accepts; None where a compiled function does not list them.
    """

    library: str
    module: str
    used_by: str
    name: str
    parameters: str | None
    relied_on: str


_SOCKET = "self protocol_factory sock sslcontext server backlog ssl_handshake_timeout ssl_shutdown_timeout"
_TABLE: dict[tuple[str, str, str], dict[str, tuple[str | None, str]]] = {
    (PYTHON, "threading", "process/forked.py"): {"_shutdown": ("", "waits for all threads that are not daemons")},
    (PYTHON, "atexit", "process/forked.py"): {
        "_clear": (None, "forgets the parent's exit functions"),
        "_run_exitfuncs": (None, "runs the exit functions, the last one first"),
    },
    (PYTHON, "asyncio", "process/servers/event_loop.py"): {
        "SelectorEventLoop._accept_connection": (_SOCKET, "accepts up to `backlog` connections per event"),
        "SelectorEventLoop._start_serving": (_SOCKET, "runs again a second after a failed accept"),
    },
    (PYTHON, "asyncio", "testing/simulation/groups/event_loop.py"): {
        "_set_running_loop": (None, "names the loop of the thread while it runs callbacks"),
        "BaseEventLoop._run_once": ("self", "runs the callbacks that are due"),
    },
    ("grpcio", "grpc._cython.cygrpc", "process/servers/call_queue.py"): {
        "Server.request_call": (None, "takes one call"),
        "Server.cancel_all_calls": (None, "ends open calls"),
        "CompletionQueue.poll": (None, "returns one event"),
        "CompletionType.queue_timeout": (None, "reports that nothing happened"),
    },
    ("grpcio", "grpc._cython.cygrpc", "server/grpc/call_threads.py"): {
        "CompletionType.queue_timeout": (None, "reports that nothing happened"),
    },
    ("grpcio", "grpc._cython.cygrpc", "ingest/requests/otlp_grpc.py"): {
        "auth_context": ("call", "returns the names in the client's certificate"),
    },
    ("grpcio", "grpc._cython.cygrpc", "server/grpc/calls.py"): {
        "ReceiveMessageOperation.message": (None, "is None if the client sends no more requests"),
        "ReceiveCloseOnServerOperation.cancelled": (None, "reports that the client has left"),
        "SendInitialMetadataOperation": (None, "precedes everything else that is sent"),
        "SendMessageOperation": (None, "sends one answer"),
    },
    ("grpcio", "grpc._cython.cygrpc", "process/servers/calls.py"): {
        "SendInitialMetadataOperation": (None, "precedes everything else that is sent"),
        "SendMessageOperation": (None, "sends one answer"),
        "SendStatusFromServerOperation": (None, "ends a call"),
        "ReceiveMessageOperation.message": (None, "is None if the client sent no request"),
        "ReceiveCloseOnServerOperation.cancelled": (None, "reports that the client has left"),
    },
    ("uvicorn", "uvicorn.protocols.http.httptools_impl", "process/servers/http_connection.py"): {
        "HttpToolsProtocol.__init__": ("self config server_state app_state _loop", "creates `parser`"),
        "HttpToolsProtocol.connection_made": ("self transport", "enters the connection in `connections`"),
        "HttpToolsProtocol.connection_lost": ("self exc", "removes it"),
        "HttpToolsProtocol.data_received": ("self data", "feeds `parser`, and calls send_400_response if it refuses"),
        "HttpToolsProtocol.send_400_response": ("self msg", "is what `data_received` calls, and closes the connection"),
        "STATUS_LINE": (None, "has the first line of an answer by status"),
        "HttpToolsProtocol.shutdown": ("self", "closes an idle connection, or clears the cycle's `keep_alive`"),
        "HttpToolsProtocol._unset_keepalive_if_required": ("self", "stops the timer between two requests"),
        "HttpToolsProtocol.on_message_begin": ("self", "empties `headers` and `url`"),
        "HttpToolsProtocol.on_header": ("self name value", "appends to `headers`"),
        "HttpToolsProtocol.on_headers_complete": ("self", "begins the request of `headers` and `url` as `cycle`"),
        "HttpToolsProtocol.on_body": ("self body", "appends to the cycle's body"),
        "HttpToolsProtocol.on_message_complete": ("self", "clears the cycle's `more_body`"),
        "HttpToolsProtocol.on_response_complete": ("self", "resumes reading, and starts the timer"),
        "RequestResponseCycle.receive": ("self", "returns a disconnection if `disconnected`, and resumes reading"),
        "RequestResponseCycle.send": ("self message", "reads `chunked_encoding` and `expected_content_length`"),
    },
    ("uvicorn", "uvicorn.protocols.http.flow_control", "process/servers/http_connection.py"): {
        "FlowControl.__init__": ("self transport", "has `read_paused`"),
        "FlowControl.resume_reading": ("self", "resumes reading if it is paused"),
    },
    ("uvicorn", "uvicorn", "server/servers.py"): {
        "Server.capture_signals": ("self", "is the context in which `serve` runs"),
    },
    ("deltalake", "deltalake._internal", "landing/storage/object_path.py"): {
        "DeltaFileSystemHandler.get_file_info": ("self paths", "reports one file per path"),
        "DeltaFileSystemHandler.delete_file": ("self path", "removes a file"),
        "DeltaFileSystemHandler.open_input_file": ("self path", "returns a file that can seek"),
        "DeltaFileSystemHandler.open_output_stream": ("self path metadata", "shows the file once it is closed"),
    },
    ("typer", "typer._click.exceptions", "cli/options.py"): {
        "UsageError.format_message": ("self", "describes a wrong option or argument; `ctx` names its command"),
        "NoArgsIsHelpError": ("ctx", "is help and no error"),
    },
    ("pyspark", "pyspark", "spark/session.py"): {
        "SparkContext._gateway": (None, "is None until a JVM runs"),
        "SparkContext._ensure_initialized": ("instance gateway conf", "uses this gateway and starts no JVM"),
    },
    ("pyspark", "pyspark.java_gateway", "spark/session.py"): {
        "launch_gateway": ("conf popen_kwargs", "passes `popen_kwargs` to Popen"),
    },
}
PRIVATE_APIS = [PrivateApi(*key, name, *row) for key, names in _TABLE.items() for name, row in names.items()]
ATTRIBUTES = {
    "grpcio": ("_credentials", "process/servers/call_queue.py"),
    "typer": ("_runtime_param", "cli/options.py"),
}
"""Private attributes of a library's objects, with the module that reads or sets them."""
PROTOCOL_ATTRIBUTES = (
    *("parser", "app_state", "loop", "connections", "cycle", "flow", "transport", "config", "client", "headers"),
    "expect_100_continue",
)
"""Attributes of an HttpToolsProtocol that ``process/servers/http_connection.py`` or a subclass reads or replaces."""
DOCUMENTED = {"_exit", "_asdict", "_fields", "_replace"}
"""Names of the standard library that are public in spite of the underscore."""


@pytest.mark.parametrize("api", PRIVATE_APIS, ids=lambda api: f"{api.module}.{api.name}")
def test_private_name_has_the_parameters_that_penstock_passes(api: PrivateApi) -> None:
    name = f"{api.module}.{api.name} of {api.library}"
    try:
        target: Any = reduce(getattr, api.name.split("."), importlib.import_module(api.module))
    except (AttributeError, ImportError):
        pytest.fail(f"{name} is gone; penstock/{api.used_by} relies on it: {api.relied_on}")
    if api.parameters is not None:
        parameters = list(inspect.signature(target).parameters)
        assert parameters == api.parameters.split(), f"{name} takes other parameters; penstock/{api.used_by} calls it"


def test_http_connection_has_the_attributes_that_its_subclass_uses() -> None:
    loop = asyncio.new_event_loop()
    try:
        protocol = LimitedProtocol(uvicorn.Config(app=lambda: None), ServerState(), {}, loop)
    finally:
        loop.close()
    missing = [name for name in PROTOCOL_ATTRIBUTES if not hasattr(protocol, name)]
    assert not missing, f"HttpToolsProtocol has no {missing}; penstock/process/servers/http_connection.py uses them"


def test_objects_have_the_private_attributes_that_penstock_uses() -> None:
    credentials = grpc.ssl_server_credentials([(b"key", b"certificate")])
    assert hasattr(credentials, "_credentials"), "ServerCredentials: process/servers/call_queue.py passes it on"
    app = typer.Typer(add_completion=False)
    app.command()(_command_with_parameter)
    parameters = typer.main.get_command(app).params
    assert all(hasattr(parameter, "_runtime_param") for parameter in parameters), (
        "a parameter of typer: cli/options.py replaces it"
    )


def _command_with_parameter(size: int = 1) -> None:
    """Take an option."""


def test_spark_has_the_checkpoint_file_manager_of_the_session() -> None:
    manager = checkpoint_settings()["spark.sql.streaming.checkpointFileManagerClass"]
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql_2*.jar")
    assert f"{manager.replace('.', '/')}.class" in ZipFile(jar).namelist(), f"Spark has no {manager}"


def test_table_lists_every_private_name_in_the_package() -> None:
    listed = {part for api in PRIVATE_APIS for part in (*api.module.split("."), *api.name.split("."))}
    listed |= {name for name, _ in ATTRIBUTES.values()} | DOCUMENTED
    for path in sorted((ROOT / "penstock").rglob("*.py")):
        if not path.stem.endswith("_pb2"):
            for line, name in _private_names(ast.parse(path.read_text())):
                assert name in listed, f"{path.relative_to(ROOT)}:{line} uses {name} of a library: list it in this file"


def _private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name where a module uses a private name that it does not define itself."""
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    foreign = {"asyncio"}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(("penstock", "__future__")):
            names = [alias.name for alias in node.names]
            foreign.update(names)
            yield from ((node.lineno, name) for name in (*(node.module or "").split("."), *names) if _is_private(name))
        elif isinstance(node, ast.Attribute) and _is_private(node.attr):
            owner = ast.unparse(node.value)
            is_code = owner.split(".")[-1] == "KafkaError"  # the codes of librdkafka's own errors are public
            if owner not in ("self", "cls", "super()") and node.attr not in own and not is_code:
                yield node.lineno, node.attr
    for node in nodes:
        if isinstance(node, ast.ClassDef) and {ast.unparse(base).split(".")[0] for base in node.bases} & foreign:
            calls = [call for call in ast.walk(node) if isinstance(call, ast.Attribute) and _is_private(call.attr)]
            yield from ((call.lineno, call.attr) for call in calls if ast.unparse(call.value) == "super()")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_libraries_with_private_names_have_an_upper_bound_that_the_pins_respect() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    libraries = {api.library for api in PRIVATE_APIS} | set(ATTRIBUTES)
    for library in libraries - {PYTHON}:
        bounds = [requirement.specifier for requirement in map(Requirement, lines) if requirement.name == library]
        assert bounds, f"pyproject.toml does not name {library}"
        for bound in bounds:
            assert _has_upper_bound(bound), f"pyproject.toml: {library} needs an upper bound, see {Path(__file__).name}"
            assert pinned[canonicalize_name(library)] in bound, f"constraints.txt: {library} is not in {bound}"
    assert _has_upper_bound(SpecifierSet(project["requires-python"])), "pyproject.toml: Python needs an upper bound"


def _has_upper_bound(bound: SpecifierSet) -> bool:
    return any(specifier.operator in ("<", "<=", "==", "~=") for specifier in bound)
