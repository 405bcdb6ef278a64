"""Entries of the Delta tables in a catalog: Hive's metastore, AWS Glue or Unity Catalog.

An entry names the table's folder and columns; engines read everything else from the table's own log.
Invariant: an entry that names another folder or format is never changed, and an update changes columns only: the owner
may have set parameters and comments. Start with ``read_entries`` and ``register``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import deltalake
from deltalake.exceptions import DeltaError

from penstock.errors import PenstockError
from penstock.landing.storage.object_path import delta_rs_options
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import existing_typed_tables

GLUE = "glue"
HIVE_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "timestamp_ntz": "timestamp"}
"""Hive's names of Delta's types that have other ones; Glue uses Hive's."""
PARAMETERS = {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "delta", "table_type": "DELTA"}
"""Marks by which Spark, Trino and Athena recognise a Delta table in Hive's metastore and in Glue."""
REGISTERED, UPDATED, UNCHANGED = "registered", "updated", "unchanged"
TIMEOUT_S = 60.0


class CatalogFailed(PenstockError, RuntimeError):
    """A catalog cannot be reached, refuses an entry, or has another table of that name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A table as a catalog shows it; ``columns`` are names and types of Hive.

    ``location`` is a URL without percent-encoding, as Hadoop's and Athena's paths are. ``fields`` are the columns in
    the Delta schema; an entry that a catalog returned has none.
    """

    name: str
    location: str
    columns: tuple[tuple[str, str], ...]
    fields: tuple[Mapping[str, Any], ...] = ()


class Catalog(Protocol):
    """A namespace of a catalog. Each method raises what the catalog's client raises."""

    def location_of(self, url: str) -> str:
        """Return the URL of a table as this catalog's engines read it."""

    def find_entry(self, name: str) -> Entry | None:
        """Return an entry; its location is empty if it is not of an external Delta table."""

    def write(self, entry: Entry, is_new: bool) -> None:
        """Make an entry, or give an existing one its columns."""


def read_entries(layout: Layout) -> list[Entry]:
    """Return the entries of ``landed``, the typed tables and ``proofs``. Raises CatalogFailed if nothing has landed."""
    entries = []
    for name in ("landed", *(table.folder.name for table in existing_typed_tables(layout)), "proofs"):
        folder = layout.proof_table if name == "proofs" else layout.table(name)
        options = delta_rs_options(folder)
        try:
            if not deltalake.DeltaTable.is_deltatable(str(folder), **options):
                continue
            schema = deltalake.DeltaTable(str(folder), **options).schema()
        except (DeltaError, OSError) as error:
            raise CatalogFailed(f"{folder} cannot be read: {str(error).partition(chr(10))[0]}") from None
        location = unquote(str(folder)) if layout.store is not None else f"file://{Path(str(folder)).absolute()}"
        fields = json.loads(schema.to_json())["fields"]
        columns = tuple((field["name"], hive_type(field["type"])) for field in fields)
        entries.append(Entry(name, location, columns, tuple(fields)))
    if not entries:
        raise CatalogFailed(f"nothing has landed in {layout.table('landed')}: there is no table to register")
    return entries


def register(entries: Iterable[Entry], catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Enter tables in a catalog; yield the name of each, and what was done.

    Raises CatalogFailed; entries that were written before stay, and the next call continues.
    """
    for local in entries:
        entry = replace(local, location=catalog.location_of(local.location))
        existing = catalog.find_entry(entry.name)
        if existing is not None and entry.location not in (place := existing.location.rstrip("/"), unquote(place)):
            other = existing.location or "something else than an external Delta table"
            raise CatalogFailed(
                f"{entry.name} is {other} in the catalog, not {entry.location}: choose another namespace"
            )
        is_same = existing is not None and place == entry.location and _has_columns(existing, entry)
        change = REGISTERED if existing is None else UNCHANGED if is_same else UPDATED
        if change != UNCHANGED:
            catalog.write(entry, existing is None)
        yield entry.name, change


def _has_columns(existing: Entry, entry: Entry) -> bool:
    """Report whether an entry has the columns of another; Hive keeps names in lower case."""
    first, second = ([(name.lower(), kind.lower()) for name, kind in each.columns] for each in (existing, entry))
    return first == second


@contextmanager
def open_catalog(
    address: str, namespace: str, *, token: str | None = None, ca: Path | None = None
) -> Iterator[Catalog]:
    """Yield a namespace, made if it is missing: ``glue``, ``thrift://HOST:PORT`` of Hive, or a Unity Catalog's URL.

    ``token`` and ``ca``, a file of trusted authorities, are for Unity Catalog. Raises CatalogFailed.
    """
    is_unity = address.startswith(("http://", "https://"))
    if not is_unity and address != GLUE and not re.fullmatch(r"thrift://[^/:]+(:\d+)?/?", address):
        forms = "glue, thrift://HOST:PORT of a Hive metastore, or https://HOST:PORT of a Unity Catalog"
        raise CatalogFailed(f"{address} is not a catalog: it is {forms}")
    if not is_unity and (token or ca):
        raise CatalogFailed(f"{address} takes no token and no certificates: they are for a Unity Catalog")
    try:
        if is_unity:
            # Here, because that module needs the types of this one.
            from penstock.upkeep.unity_catalog import UnityNamespace, UnityServer

            yield UnityNamespace(UnityServer(address, token, ca), namespace)
            return
        with (_open_glue if address == GLUE else _open_hive)(address, namespace) as catalog:
            yield catalog
    except CatalogFailed:
        raise
    except ImportError as error:
        raise CatalogFailed(f"{error}: pip install 'penstock-pipe[audit-iceberg]'") from None
    except Exception as error:  # noqa: BLE001 - each client has errors of its own
        text = str(error) or getattr(error, "message", "") or type(error).__name__
        raise CatalogFailed(f"{address}: {text}") from None


@contextmanager
def _open_glue(address: str, namespace: str) -> Iterator[Catalog]:
    import boto3

    glue = boto3.client("glue")
    try:
        glue.get_database(Name=namespace)
    except glue.exceptions.EntityNotFoundException:
        glue.create_database(DatabaseInput={"Name": namespace})
    yield GlueNamespace(glue, namespace)


class GlueNamespace:
    """A database of AWS Glue; credentials and region as boto3 finds them."""

    def __init__(self, glue: Any, namespace: str) -> None:
        self._glue, self._namespace = glue, namespace

    def location_of(self, url: str) -> str:
        return url

    def find_entry(self, name: str) -> Entry | None:
        try:
            table = self._glue.get_table(DatabaseName=self._namespace, Name=name)["Table"]
        except self._glue.exceptions.EntityNotFoundException:
            return None
        storage = table.get("StorageDescriptor", {})
        is_delta = table.get("Parameters", {}).get("spark.sql.sources.provider") == "delta"
        columns = tuple((column["Name"], column.get("Type", "")) for column in storage.get("Columns", ()))
        return Entry(name, storage.get("Location", "") if is_delta else "", columns)

    def write(self, entry: Entry, is_new: bool) -> None:
        table: dict[str, Any] = {"Name": entry.name, "TableType": "EXTERNAL_TABLE"}
        if not is_new:
            # Workaround: Glue replaces the whole entry, and refuses what it adds itself, such as the time of creation.
            existing = self._glue.get_table(DatabaseName=self._namespace, Name=entry.name)["Table"]
            settable = self._glue.meta.service_model.shape_for("TableInput").members
            table |= {name: part for name, part in existing.items() if name in settable}
        storage = table.get("StorageDescriptor", {})
        columns = {column["Name"].lower(): column for column in storage.get("Columns", ())}
        serde = storage.get("SerdeInfo", {})
        table["Parameters"] = {**table.get("Parameters", {}), **PARAMETERS}
        table["StorageDescriptor"] = {
            **storage,
            "Location": entry.location,
            "Columns": [{**columns.get(name.lower(), {}), "Name": name, "Type": kind} for name, kind in entry.columns],
            "SerdeInfo": {**serde, "Parameters": {**serde.get("Parameters", {}), **_serde_parameters(entry)}},
        }
        write = self._glue.create_table if is_new else self._glue.update_table
        write(DatabaseName=self._namespace, TableInput=table)


@contextmanager
def _open_hive(address: str, namespace: str) -> Iterator[Catalog]:
    from hive_metastore import ThriftHiveMetastore
    from hive_metastore.ttypes import Database, NoSuchObjectException
    from thrift.protocol import TBinaryProtocol
    from thrift.transport import TSocket, TTransport

    # Workaround: thrift logs a traceback before it raises the error, which the command reports in a line.
    logging.getLogger(TSocket.__name__).setLevel(logging.CRITICAL)
    server = urlsplit(address)
    socket = TSocket.TSocket(server.hostname, server.port or 9083)
    socket.setTimeout(TIMEOUT_S * 1000)
    transport = TTransport.TBufferedTransport(socket)
    client = ThriftHiveMetastore.Client(TBinaryProtocol.TBinaryProtocol(transport))
    transport.open()
    try:
        try:
            client.get_database(namespace)
        except NoSuchObjectException:
            client.create_database(Database(name=namespace, parameters={}))
        yield HiveNamespace(client, namespace)
    finally:
        transport.close()


class HiveNamespace:
    """A database of Hive's metastore."""

    def __init__(self, client: Any, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    def location_of(self, url: str) -> str:
        # Hadoop reads S3 by its client of that name.
        return url.replace("s3://", "s3a://", 1)

    def find_entry(self, name: str) -> Entry | None:
        from hive_metastore.ttypes import NoSuchObjectException

        try:
            table = self._client.get_table(self._namespace, name)
        except NoSuchObjectException:
            return None
        is_delta = table.parameters.get("spark.sql.sources.provider") == "delta"
        location = table.sd.serdeInfo.parameters.get("path", table.sd.location)
        return Entry(name, location if is_delta else "", tuple((column.name, column.type) for column in table.sd.cols))

    def write(self, entry: Entry, is_new: bool) -> None:
        from hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table

        if not is_new:
            table = self._client.get_table(self._namespace, entry.name)
            comments = {column.name: column.comment or "" for column in table.sd.cols}
            table.sd.cols = [FieldSchema(name, kind, comments.get(name.lower(), "")) for name, kind in entry.columns]
            table.sd.location = entry.location
            table.sd.serdeInfo.parameters |= _serde_parameters(entry)
            table.parameters |= PARAMETERS
            self._client.alter_table(self._namespace, entry.name, table)
            return
        storage = StorageDescriptor(
            cols=[FieldSchema(name, kind, "") for name, kind in entry.columns],
            location=entry.location,
            inputFormat="org.apache.hadoop.mapred.SequenceFileInputFormat",
            outputFormat="org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
            serdeInfo=SerDeInfo(
                serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
                parameters=_serde_parameters(entry),
            ),
            numBuckets=-1,
            bucketCols=[],
            sortCols=[],
            parameters={},
        )
        table = Table(
            dbName=self._namespace,
            tableName=entry.name,
            owner="penstock",
            sd=storage,
            partitionKeys=[],
            parameters=dict(PARAMETERS),
            tableType="EXTERNAL_TABLE",
        )
        self._client.create_table(table)


def _serde_parameters(entry: Entry) -> dict[str, str]:
    return {"path": entry.location, "serialization.format": "1"}


def hive_type(kind: Any) -> str:
    """Return Hive's name of a type of a Delta schema."""
    if isinstance(kind, str):
        return HIVE_TYPES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{hive_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{hive_type(kind['keyType'])},{hive_type(kind['valueType'])}>"
    return "struct<" + ",".join(f"{field['name']}:{hive_type(field['type'])}" for field in kind["fields"]) + ">"
