from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import Name
from penstock.server.metrics import HELP, Family, of_counts, render


def test_a_family_has_help_type_and_samples() -> None:
    family = Family("penstock_up", "gauge", "Whether it\nruns", [({}, 1), ({"a": 'x"\\\n'}, 0.5)])
    assert render([family]) == (
        "# HELP penstock_up Whether it\\nruns\n"
        "# TYPE penstock_up gauge\n"
        "penstock_up 1\n"
        'penstock_up{a="x\\"\\\\\\n"} 0.5\n'
    )


def test_special_values_have_their_names() -> None:
    samples = [({"v": str(i)}, value) for i, value in enumerate((math.inf, -math.inf, math.nan, 2.0, -1))]
    values = [line.rpartition(" ")[2] for line in render([Family("x", "gauge", "", samples)]).splitlines()[2:]]
    assert values == ["+Inf", "-Inf", "NaN", "2", "-1"]


def test_counts_become_families_by_name_with_reasons_as_labels() -> None:
    families = of_counts({"a": {"taken": 2, "refused.oversize": 1}, "b": {"taken": 3, "open": -1, "fragment.open": 4}})
    assert [(f.name, f.kind, f.samples) for f in families] == [
        ("penstock_fragment_open", "gauge", [({"source": "b"}, 4)]),
        ("penstock_open", "gauge", [({"source": "b"}, -1)]),
        ("penstock_refused_total", "counter", [({"source": "a", "reason": "oversize"}, 1)]),
        ("penstock_taken_total", "counter", [({"source": "a"}, 2), ({"source": "b"}, 3)]),
    ]


def test_every_count_of_the_balance_has_a_help() -> None:
    for name in Name:
        assert name in HELP or name.partition(".")[0] + "." in HELP


@given(st.dictionaries(st.text(), st.dictionaries(st.text(min_size=1), st.integers(-5, 2**60), max_size=4), max_size=3))
def test_each_family_is_rendered_once(counts: dict[str, dict[str, int]]) -> None:
    lines = render(of_counts(counts)).split("\n")
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert sum(not line.startswith("#") for line in lines if line) >= sum(map(len, counts.values()))
