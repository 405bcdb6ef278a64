"""Compare the content of rows with their records: columns that hold a field of the record, as canonical text.

See ``staging`` for what is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from penstock.audit.fields import BadField, FieldPair
from penstock.audit.matching.staging import Staging
from penstock.audit.outcome import ALL, Report
from penstock.audit.pace import Pace
from penstock.audit.source import AuditSource
from penstock.audit.tables.table import AuditedTable
from penstock.landing.offset_runs import NO_RUNS, Runs, count_offsets, offsets_of, runs_of

RAW = {"value": "value", "payload": "value", "key": "key", "timestamp": "timestamp"}
"""Columns of tables with unparsed records, named as in Spark's Kafka source."""
SHOWN = 5
SAMPLE_SEED = 1
"""The sample is the same in each run, so that a receipt can be repeated."""
MAX_TEXT = 60


def content_pairs(table: AuditedTable, report: Report) -> list[FieldPair]:
    """Return the compared columns: the named ones, or those with a field of the same name."""
    if report.request.compared:
        return list(report.request.compared)
    matching = {*report.columns.names, *report.proof.columns}
    names = [name for name in table.column_names() if name not in matching and "." not in name]
    if "value" in names or "payload" in names:
        return [FieldPair(name, RAW[name]) for name in names if name in RAW]
    return [FieldPair(name, f'$."{name}"') for name in names if '"' not in name]


def compare_content(
    source: AuditSource,
    table: AuditedTable,
    report: Report,
    present: Mapping[int, Runs],
    progress: Callable[[str], None],
) -> None:
    """Compare records with the rows at their offsets: all that are ``present``, or a sample of them."""
    selected = _sample(present, report.request.sample)
    with Staging(content_pairs(table, report), report.request.decoder) as staging:
        pace = Pace("rows", sum(map(count_offsets, selected.values())), progress)
        staging.load_rows(table, report.columns, source.topic, selected, pace)
        staging.load_records(source, selected, selected, True, progress)
        progress("contents")
        compare_staged(staging, report)


def _sample(present: Mapping[int, Runs], size: int) -> dict[int, Runs]:
    counts = {number: count_offsets(ranges) for number, ranges in present.items()}
    total = sum(counts.values())
    if size == ALL or size >= total:
        return dict(present)
    chosen = np.sort(np.random.default_rng(SAMPLE_SEED).choice(total, size, replace=False))
    sampled, first = {}, 0
    for number, ranges in present.items():
        ranks = chosen[(chosen >= first) & (chosen < first + counts[number])] - first
        first += counts[number]
        if len(ranks):
            # The offset of a rank, without listing all offsets: ranks are counted from the begin of each range.
            sizes = np.cumsum(ranges[:, 1] - ranges[:, 0])
            index = np.searchsorted(sizes, ranks, "right")
            sampled[number] = runs_of(ranges[index, 1] - (sizes[index] - ranks))
    return sampled


def compare_staged(staging: Staging, report: Report, by: str = "offsets") -> None:
    """Compare loaded records and rows, joined by offsets or by the id in the first pair."""
    first = 1 if by == "ids" else 0
    indices = list(range(first, len(staging.pairs)))
    if report.request.compared:
        staging.require_plain(indices)
    else:
        # A column whose name no record has as a field is the sink's own; lists and structs are compared by no rule.
        indices = [index for index in indices if staging.has_content(index) and not staging.is_nested(index)]
    if not indices:
        raise BadField("no column is named like a field of the records; name columns by --compare COLUMN=FIELD")
    report.compared = tuple(staging.pairs[index] for index in indices)
    if by == "ids":
        # Limit: only ids of one record; else each record would meet the rows of all others with its id.
        joined = (
            f"records JOIN rows ON records.c0 = {staging.content_of_row(0)} "  # noqa: S608 - parsed fields
            "WHERE required AND records.c0 IN (SELECT id FROM ids WHERE ids.records = 1)"
        )
    else:
        joined = 'records JOIN rows USING ("partition", position) WHERE true'
    ((report.compared_records,),) = staging.query(
        f'SELECT count(DISTINCT (records."partition", records.position)) FROM {joined}'  # noqa: S608 - parsed fields
    )
    for part in report.partitions:
        texts = {index: staging.content_of_row(index) for index in indices}
        of_partition = f'{joined} AND records."partition" = {int(part.partition)}'
        differing: list[Runs] = [NO_RUNS]
        for index, text in texts.items():
            query = f"FROM {of_partition} AND records.c{index} IS DISTINCT FROM {text}"
            (positions,) = staging.arrays(f"SELECT DISTINCT records.position {query}").values()
            if not len(positions):
                continue
            differing.append(runs_of(np.sort(np.asarray(positions, np.int64))))
            part.differing_in[staging.pairs[index].column] = len(positions)
            examples = staging.query(
                f"SELECT records.position, records.c{index}, {text}, rows.file {query} ORDER BY 1 LIMIT {SHOWN}"
            )
            part.differences += [
                f"record {part.partition}:{position}: {staging.pairs[index].column} is {_short(row)} and must be "
                f"{_short(record)}, in {file}"
                for position, record, row, file in examples
            ]
        part.differing = runs_of(np.unique(np.concatenate([offsets_of(ranges) for ranges in differing])))


def _short(text: str | None) -> str:
    if text is None:
        return "null"
    return repr(text[:MAX_TEXT]) + ("..." if len(text) > MAX_TEXT else "")
