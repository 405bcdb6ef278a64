"""Entries in Unity Catalog: its recorded API in each run, the real server and Polars as a reader in ``make soak``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import polars as pl
import pytest

from penstock.java.runtime import find_java
from penstock.testing.pipe import free_ports
from penstock.upkeep.catalog_entries import CatalogFailed, open_catalog
from tests.object_store import wait_for_port
from tests.server.certificates import make
from tests.upkeep.register_command import Register, prepare_register, widen_clicks
from tests.upkeep.test_changes import EVENTS
from tests.upkeep.unity_server import API, UnityServer, unity_server

DATA = "data"
CLASSPATH = "UNITY_CATALOG_CLASSPATH"
"""The Java classpath of the real server, as ``build/sbt package`` writes it in a checkout of Unity Catalog."""
NAMESPACE = ("--namespace", "main.logs")


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Register:
    return prepare_register(tmp_path / DATA, monkeypatch, capsys)


@pytest.fixture
def server() -> Iterator[UnityServer]:
    with unity_server() as running:
        yield running


def url(server: UnityServer, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{server.server_port}"


def write_secret(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_unity_catalog_has_the_tables_once_and_follows_their_columns(
    register: Register, server: UnityServer, tmp_path: Path
) -> None:
    words = (url(server), *NAMESPACE, "--json")
    assert json.loads(register(*words)) == {"landed": "registered", "events_click": "registered"}
    assert json.loads(register(*words)) == {"landed": "unchanged", "events_click": "unchanged"}
    click = server.table("main.logs.events_click")
    assert click.items() >= {"table_type": "EXTERNAL", "data_source_format": "DELTA"}.items()
    assert click["storage_location"] == f"file://{tmp_path / DATA}/tables/events_click"
    columns = {column["name"]: column for column in click["columns"]}
    assert columns["offset"].items() >= {"type_text": "bigint", "type_name": "LONG", "nullable": True}.items()
    assert json.loads(columns["ms"]["type_json"])["type"] == "integer"
    assert [column["position"] for column in click["columns"]] == list(range(len(columns)))
    annotations = next(each for each in server.table("main.logs.landed")["columns"] if each["name"] == "annotations")
    assert (annotations["type_name"], annotations["type_text"]) == ("MAP", "map<string,string>")
    widen_clicks(tmp_path / DATA)
    click["comment"], columns["path"]["comment"] = "Clicks", "the page"
    server.table("main.logs.landed")["columns"].pop(0)
    assert json.loads(register(*words)) == {"landed": "updated", "events_click": "updated"}
    assert set(json.loads(register(*words)).values()) == {"unchanged"}
    columns = {column["name"]: column for column in click["columns"]}
    assert json.loads(columns["more"]["type_json"])["type"] == "decimal(9,2)"
    assert (click["comment"], columns["path"]["comment"]) == ("Clicks", "the page")


def test_decimals_have_their_precision(server: UnityServer, register: Register, tmp_path: Path) -> None:
    widen_clicks(tmp_path / DATA)
    register(url(server), *NAMESPACE)
    more = server.table("main.logs.events_click")["columns"][-1]
    assert (more["type_text"], more["type_name"]) == ("decimal(9,2)", "DECIMAL")
    assert (more["type_precision"], more["type_scale"]) == (9, 2)


@pytest.mark.parametrize(
    "other",
    [{"storage_location": "s3://other/landed"}, {"table_type": "MANAGED"}, {"data_source_format": "PARQUET"}],
)
def test_entry_of_another_table_stays(register: Register, server: UnityServer, other: dict[str, str]) -> None:
    register(url(server), *NAMESPACE)
    landed = server.table("main.logs.landed")
    landed |= other
    before = dict(landed)
    error = register(url(server), *NAMESPACE, status=1)
    assert "choose another namespace" in error
    assert error.count("\n") == 1
    assert landed == before


def test_folder_with_a_blank_is_a_url(
    tmp_path: Path, server: UnityServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    register = prepare_register(tmp_path / "päth with space", monkeypatch, capsys)
    register(url(server), *NAMESPACE)
    location = f"file://{tmp_path}/päth%20with%20space/tables/landed"
    assert server.table("main.logs.landed")["storage_location"] == location
    assert "landed: unchanged" in register(url(server), *NAMESPACE)


def test_token_is_sent_to_the_server_only(
    register: Register, server: UnityServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = "secret"
    token = ("--token-file", write_secret(tmp_path / "token", "secret\n"))
    assert register(url(server), *NAMESPACE, status=1).endswith("answers 401: Invalid access token.\n")
    register(url(server), *NAMESPACE, *token)
    assert server.requests[-1][2] == "Bearer secret"
    with unity_server() as other:
        monkeypatch.setenv("http_proxy", url(other))
        register(url(server), *NAMESPACE, *token)
        server.redirect = f"{url(other)}/elsewhere"
        error = register(url(server), *NAMESPACE, *token, status=1)
        assert error.endswith(f"answers 307: a redirect to {server.redirect}, which is not followed\n")
        assert not other.requests
    error = register("http://unity.example:8080", *NAMESPACE, *token, status=1)
    assert error == "penstock: http://unity.example:8080: a token needs https: others on the network could read it\n"
    (tmp_path / "token").chmod(0o644)
    assert "chmod 600" in register(url(server), *NAMESPACE, *token, status=1)


def test_certificate_is_checked(register: Register, tmp_path: Path) -> None:
    authority = make(tmp_path, "authority")
    pair = make(tmp_path, "unity", issuer=authority)
    with unity_server(pair.cert, pair.key) as server:
        token = ("--token-file", write_secret(tmp_path / "token", "secret"))
        assert "certificate verify failed" in register(url(server, "https"), *NAMESPACE, *token, status=1)
        assert not server.requests
        register(url(server, "https"), *NAMESPACE, *token, "--ca", str(authority.cert))
        assert server.table("main.logs.landed")
        error = register(url(server, "https"), *NAMESPACE, "--ca", str(tmp_path / "none"), status=1)
        assert error == f"penstock: {tmp_path}/none holds no certificates: No such file or directory\n"


def test_older_server_that_cannot_change_columns_is_named(
    register: Register, server: UnityServer, tmp_path: Path
) -> None:
    server.has_delta_api = False
    register(url(server), *NAMESPACE)
    before = list(server.table("main.logs.events_click")["columns"])
    widen_clicks(tmp_path / DATA)
    error = register(url(server), *NAMESPACE, status=1)
    assert error.endswith(
        "servers before 0.5 cannot change columns, so delete the entry there and repeat the command\n"
    )
    assert server.table("main.logs.events_click")["columns"] == before


def test_errors_are_one_line(register: Register, server: UnityServer) -> None:
    (port,) = free_ports(1)
    for address, namespace, cause in (
        (url(server), "logs", "a namespace of Unity Catalog is CATALOG.SCHEMA"),
        (url(server), "a.b.c", "a namespace of Unity Catalog is CATALOG.SCHEMA"),
        (f"http://127.0.0.1:{port}", "main.logs", "Connection refused"),
        (f"{url(server)}/other", "main.logs", "answers 404: Status: 404 Description: Not Found"),
        ("http://", "main.logs", "is not the address of a server"),
        ("https://ann:secret@unity", "main.logs", "is not the address of a server"),
    ):
        error = register(address, "--namespace", namespace, status=1)
        assert cause in error
        assert error.count("\n") == 1


def test_token_and_certificates_are_for_unity_catalog() -> None:
    with pytest.raises(CatalogFailed, match="glue takes no token"), open_catalog("glue", "logs", token="x"):
        pass


@contextmanager
def real_server(folder: Path) -> Iterator[str]:
    """Yield the URL of Unity Catalog's own server, which requires the token in ``etc/conf/token.txt``."""
    conf = folder / "etc" / "conf"
    conf.mkdir(parents=True)
    (folder / "etc" / "db").mkdir()
    conf.joinpath("server.properties").write_text(
        "server.env=dev\nserver.authorization=enable\nserver.allowed-issuers=https://example.com\n"
        "server.audiences=penstock\n"
    )
    conf.joinpath("hibernate.properties").write_text(
        "hibernate.connection.driver_class=org.h2.Driver\n"
        "hibernate.connection.url=jdbc:h2:file:./etc/db/h2db;DB_CLOSE_DELAY=-1\nhibernate.hbm2ddl.auto=update\n"
    )
    (port,) = free_ports(1)  # The server takes the next port, too.
    main = "io.unitycatalog.server.UnityCatalogServer"
    command = [str(find_java().home / "bin" / "java"), "-Xmx512m", "-cp", os.environ[CLASSPATH], main, "-p", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        wait_for_port(port, 120)
        (conf / "token.txt").chmod(0o600)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.soak
@pytest.mark.skipif(CLASSPATH not in os.environ, reason=f"{CLASSPATH} is not set")
def test_polars_reads_the_tables_from_the_real_server(register: Register, tmp_path: Path) -> None:
    with real_server(tmp_path / "unity") as address:
        token = tmp_path / "unity" / "etc" / "conf" / "token.txt"
        words = (address, *NAMESPACE, "--token-file", str(token), "--json")

        def call(method: str, path: str, document: object = None) -> Any:
            headers = {"Authorization": f"Bearer {token.read_text().strip()}", "Content-Type": "application/json"}
            body = None if document is None else json.dumps(document).encode()
            with urlopen(Request(address + path, body, headers, method=method)) as response:
                return json.load(response)

        assert json.loads(register(*words)) == {"landed": "registered", "events_click": "registered"}
        assert json.loads(register(*words)) == {"landed": "unchanged", "events_click": "unchanged"}
        user = {"displayName": "Ann", "emails": [{"value": "ann@example.com", "primary": True}]}
        call("POST", "/api/1.0/unity-control/scim2/Users", user)
        grants = f"{API}/permissions/table/main.logs.events_click"
        call("PATCH", grants, {"changes": [{"principal": "ann@example.com", "add": ["SELECT"], "remove": []}]})
        granted = call("GET", grants)
        landed = call("GET", f"{API}/tables/main.logs.landed")
        requirement = {"type": "assert-table-uuid", "uuid": landed["table_id"]}
        columns = {"type": "struct", "fields": [json.loads(landed["columns"][0]["type_json"])]}
        call(
            "POST",
            f"{API}/delta/v1/catalogs/main/schemas/logs/tables/landed",
            {"requirements": [requirement], "updates": [{"action": "set-columns", "columns": columns}]},
        )
        widen_clicks(tmp_path / DATA)
        assert json.loads(register(*words)) == {"landed": "updated", "events_click": "updated"}
        assert json.loads(register(*words)) == {"landed": "unchanged", "events_click": "unchanged"}
        assert call("GET", grants) == granted
        again = call("GET", f"{API}/tables/main.logs.landed")
        known = ("name", "type_text", "type_name", "type_json", "position", "nullable")
        for after, before in zip(again["columns"], landed["columns"], strict=True):
            # The server's own words for types, which its Delta API writes, are those of the command.
            assert [json.loads(after[key]) if key == "type_json" else after[key] for key in known] == [
                json.loads(before[key]) if key == "type_json" else before[key] for key in known
            ]
        catalog = pl.Catalog(address, bearer_token=token.read_text().strip(), require_https=False)
        for table in ("landed", "events_click"):
            rows = catalog.scan_table("main", "logs", table).select(pl.col("uuid").count()).collect().item()
            assert rows == 2 * EVENTS
