"""``penstock schema`` and ``penstock tables fill``: from landed events to a complete typed table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import deltalake
import pytest

from penstock import config
from penstock.files.change_log import ChangeLog
from penstock.files.checked_lines import append_lines
from penstock.landing.journal import Commit
from penstock.landing.table_paths import Layout
from penstock.landing.typed.columns import configured_tables
from tests.cli.command_line import run_in_process
from tests.landing.typed.typed_life import Life, event, uuids
from tests.landing.writing.messages import source

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    built = Layout.for_tables(tmp_path / "tables")
    Life(built, []).land(0, [source([(n, event(f"u{n}", path=f"/{n}", ms=n)) for n in range(3)])])
    return built


@pytest.fixture
def run(layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    (tmp_path / "penstock.toml").write_text(f"data_dir = '{tmp_path}'\n")
    monkeypatch.chdir(tmp_path)
    return lambda *words: run_in_process(words, monkeypatch, capsys)


def test_proposed_table_is_configured_and_filled(run: Run, layout: Layout, tmp_path: Path) -> None:
    status, out, _ = run("schema", "infer", "click")
    assert status == 0
    with open(tmp_path / "penstock.toml", "a") as file:
        file.write(out)
    status, out, _ = run("schema", "diff", "click", "--json")
    assert (status, out.count("is added at the next start of the pipeline")) == (1, 2)
    assert "does not exist yet: start the pipeline, which creates it" in run("tables", "fill", "click")[2]

    tables = configured_tables(config.load(tmp_path / "penstock.toml", environment={}).pipeline)
    Life(layout, tables).land(1, [source([(3, event("u3", path="/", ms=3))])])
    status, _, err = run("schema", "diff", "click")
    assert (status, "events_click has what landed after batch 0" in err) == (0, True)
    assert run("tables", "fill", "click")[:2] == (0, "3 rows added to events_click\n")
    assert run("tables", "fill", "click")[1] == "events_click is complete: no row is missing\n"
    assert [change["what"] for change in ChangeLog(tmp_path).newest()] == ["add 3 rows to events_click"]
    assert uuids(layout.typed("click")) == uuids(layout.landed)

    assert run("tables", "refill", "click")[:2] == (0, "events_click is rebuilt: 4 rows\n")
    status, out, err = run("schema", "diff", "click", "--json")
    assert (status, json.loads(out)["after"], err) == (0, -1, "")
    assert json.loads(run("tables", "rows", "--json")[1])["events_click"] == 4
    files = json.loads(run("tables", "files", "--view", "events_click", "--json")[1])
    assert len(files) == 2, "one for each landed file"
    assert "events_click" in run("tables", "spark-config")[1]
    assert "spark.jars.packages io.delta:delta-spark_4.2_2.13:4.4.0\n" in run("tables", "spark-config")[1]
    assert "io.delta:delta-spark_4.0_2.13:4.4.0\n" in run("tables", "spark-config", "--spark", "4.0")[1]
    status, _, err = run("tables", "spark-config", "--spark", "4.3")
    assert status == 1
    assert " ".join(err.split()) == "penstock: --spark: there is no Delta for Spark '4.3', only for 4.0, 4.1, 4.2"
    answer = run("sql", "select max(ms) as ms from events_click", "--json", "--landed")[1]
    assert json.loads(answer) == [{"ms": 3}]


def test_sample_shows_events_that_would_not_fit(run: Run, layout: Layout, tmp_path: Path) -> None:
    Life(layout, []).land(1, [source([(3, event("u3", path=[1], ms="x")), (4, event("u4", ms=1))])])
    with open(tmp_path / "penstock.toml", "a") as file:
        file.write("[pipeline.typed.click.columns]\npath = 'string'\nms = 'int'\n")
    status, out, _ = run("schema", "diff", "click", "--sample", "1")
    assert (status, "ms: 1 of 5 are not int" in out) == (1, True)
    assert '  offset 3 of t, uuid u3: "x"' in out
    misfits = json.loads(run("schema", "diff", "click", "--sample", "1", "--json")[1])["misfits"]
    row = {"topic": "t", "partition": None, "offset": 3, "uuid": "u3"}
    assert misfits == [
        {"field": "path", "needs": "string", "events": 1, "examples": [{**row, "value": "[1]"}]},
        {"field": "ms", "needs": "int", "events": 1, "examples": [{**row, "value": '"x"'}]},
    ]
    assert not (layout.tables / "events_click").exists()


def test_unknown_typed_table_is_rejected(run: Run) -> None:
    assert run("schema", "infer", "nothing") == (1, "", "penstock: no event of type 'nothing' has landed\n")
    assert run("schema", "diff", "click") == (
        2,
        "",
        "penstock: [pipeline.typed.click] is not configured; configured are: none\n",
    )
    assert "no view is named 'events_click'" in run("tables", "files", "--view", "events_click")[2]


def test_infer_prints_json(run: Run) -> None:
    output = json.loads(run("schema", "infer", "click", "--rows", "2", "--json")[1])
    assert output == {
        "type": "click",
        "events": 2,
        "fields": [
            {"field": "ms", "type": "bigint", "events": 2},
            {"field": "path", "type": "string", "events": 2},
        ],
    }


def test_violations_are_listed_by_table_column_and_rule(tmp_path: Path, run: Run) -> None:
    (tmp_path / "penstock.toml").write_text(
        f"data_dir = '{tmp_path}'\n[pipeline.typed.click.columns]\nms = {{ type = 'int', max = 5 }}\n"
        "[pipeline.typed.view]\non_violation = 'quarantine'\ncolumns.path = { type = 'string', enum = ['/'] }\n"
    )
    assert run("schema", "violations")[1] == "no event has violated a contract\n"
    tables = configured_tables(config.load(tmp_path / "penstock.toml", environment={}).pipeline)
    layout = Layout.for_tables(tmp_path / "tables")
    life = Life(layout, tables)
    events = [event("a", ms=6), event("b", ms=7), event("c", ms=5), event("d", "view", path="/x"), event("e", "view")]
    life.land(1, [source(list(enumerate(events, 10)))])
    commit = json.loads(deltalake.DeltaTable(str(layout.landed)).history(1)[0]["penstock"])
    append_lines(layout.journal, [Commit(1, {}, {}, 0, 0, (), violations=Counter(commit["violations"])).document()])
    status, out, _ = run("schema", "violations", "--json")
    keys = ("table", "column", "rule", "destination", "events")
    listed = [("click", "ms", "max", "rest", 2), ("view", "path", "enum", "quarantine", 1)]
    assert (status, json.loads(out)) == (0, [dict(zip(keys, row, strict=True)) for row in listed])
    assert run("schema", "violations", "view")[1].split()[5:] == ["view", "path", "enum", "quarantine", "1"]


def test_changed_contract_is_shown_by_diff_and_refill(tmp_path: Path, run: Run) -> None:
    file, layout = tmp_path / "penstock.toml", Layout.for_tables(tmp_path / "tables")
    columns = "[pipeline.typed.click.columns]\nms = { type = 'int'RULE }\n"
    file.write_text(f"data_dir = '{tmp_path}'\n" + columns.replace("RULE", ""))
    tables = configured_tables(config.load(file, environment={}).pipeline)
    Life(layout, tables).land(1, [source([(n, event(f"w{n}", ms=n)) for n in range(10, 15)])])
    file.write_text(f"data_dir = '{tmp_path}'\n" + columns.replace("RULE", ", max = 13"))
    status, out, _ = run("schema", "diff", "click", "--sample", "1", "--json")
    document = json.loads(out)
    refills = "1 stored rows differ: `penstock tables refill click` changes them"
    assert (status, document["columns"][0]["difference"]) == (1, f"1 violate max: rest; {refills}")
    example = {"topic": "t", "partition": None, "offset": 14, "uuid": "w14", "stored": "14", "configured": "null"}
    changed = [{"column": "ms", "rows": 1, "examples": [example]}]
    assert document["changed"] == changed
    assert "offset 14 of t, uuid w14: 14 -> null" in run("schema", "diff", "click", "--sample", "1")[1]
    assert json.loads(run("tables", "refill", "click", "--json")[1]) == {"rows": 8, "changed": changed}
    assert run("tables", "refill", "click")[1] == "events_click is rebuilt: 8 rows\n"


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"x" * path.stat().st_size), Path.unlink])
def test_refill_repairs_a_table_whose_rows_cannot_be_compared(
    tmp_path: Path, run: Run, damage: Callable[[Path], None]
) -> None:
    file, layout = tmp_path / "penstock.toml", Layout.for_tables(tmp_path / "tables")
    file.write_text(f"data_dir = '{tmp_path}'\n[pipeline.typed.click.columns]\nms = 'int'\npath = 'string'\n")
    tables = configured_tables(config.load(file, environment={}).pipeline)
    Life(layout, tables).land(1, [source([(n, event(f"w{n}", ms=n, path="/")) for n in range(10, 15)])])
    assert run("tables", "refill", "click")[0] == 0
    assert run("schema", "diff", "click")[0] == 0

    damage(Path(deltalake.DeltaTable(str(layout.typed("click"))).file_uris()[0]))
    status, out, err = run("schema", "diff", "click", "--sample", "1", "--json")
    assert (status, json.loads(out)["changed"]) == (1, None)
    assert "rows of events_click were not compared, because they cannot be read: " in " ".join(err.split())
    status, out, err = run("tables", "refill", "click", "--json")
    assert (status, json.loads(out)) == (0, {"rows": 8, "changed": None})
    assert "rows of events_click were not compared, because they cannot be read: " in " ".join(err.split())
    assert run("schema", "diff", "click")[::2] == (0, "")
    assert uuids(layout.typed("click")) == uuids(layout.landed)
