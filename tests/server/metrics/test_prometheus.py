from __future__ import annotations

import math

import numpy as np

from penstock.server.metrics.prometheus import Family, render, statistics_families
from penstock.wire.plog.statistics import Statistics


def test_family_is_rendered_with_help_type_and_samples() -> None:
    family = Family("penstock_up", "gauge", "Whether it\nruns", [({}, 1), ({"a": 'x"\\\n'}, 0.5)])
    assert render([family]) == (
        "# HELP penstock_up Whether it\\nruns\n"
        "# TYPE penstock_up gauge\n"
        "penstock_up 1\n"
        'penstock_up{a="x\\"\\\\\\n"} 0.5\n'
    )


def test_special_values_are_rendered_by_name() -> None:
    samples = [({"v": str(i)}, value) for i, value in enumerate((math.inf, -math.inf, math.nan, 2.0, -1))]
    values = [line.rpartition(" ")[2] for line in render([Family("x", "gauge", "", samples)]).splitlines()[2:]]
    assert values == ["+Inf", "-Inf", "NaN", "2", "-1"]


def test_every_statistic_is_a_metric() -> None:
    statistics = Statistics()
    statistics.udp_simple_messages = 7
    statistics.add_fragments(np.array([0, 1, 5]))
    statistics.add_invalid(np.array([9]), np.array([3]))
    handlers = [{"name": "log"}, {"name": "bin", "delivered": 4, "note": "text"}]
    document = {"version": "1.2", "uptime": 99, "pid": 1, **statistics.as_dict(), "handlers": handlers}
    families = {family.name: family for family in statistics_families({"a": document, "b": document})}
    stems = {name.removeprefix("penstock_plog_") for name in families}
    for key in document.keys() - {"pid", "handlers", "v0_invalid_fragments", "dropped_fragments"}:
        assert any(stem.startswith(key) for stem in stems), key
    simple = families["penstock_plog_udp_simple_messages_total"]
    assert (simple.kind, simple.samples) == ("counter", [({"listener": "a"}, 7), ({"listener": "b"}, 7)])
    assert ({"listener": "b", "index": "3"}, 1) in families["penstock_plog_v0_fragments_total"].samples
    assert families["penstock_plog_v0_invalid_fragments_total"].samples == [
        ({"listener": name, "fragments": "4", "index": "2"}, 1) for name in "ab"
    ]
    assert families["penstock_plog_handlers_delivered"].samples[0] == ({"listener": "a", "handler": "bin"}, 4)
    assert len(families["penstock_plog_kafka_rate"].samples) == 36
    assert render(list(families.values()))
