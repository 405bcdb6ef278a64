"""Topics selected by names and patterns."""

from penstock.log.topic_patterns import is_selected


def test_topics_are_selected_by_name_and_pattern_but_internal_topics_only_by_name():
    names = ("a", "app.one", "app.two", "_ledger", ".hidden")

    def selected(*patterns):
        return [name for name in names if is_selected(name, patterns)]

    assert selected("*") == ["a", "app.one", "app.two"]
    assert selected("app.*", "a") == ["a", "app.one", "app.two"]
    assert selected("_ledger", "missing") == ["_ledger"]
    assert selected("_*", ".h*") == []
