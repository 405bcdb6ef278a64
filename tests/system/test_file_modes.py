"""What the processes leave in the data directory is nobody else's."""

from __future__ import annotations

from penstock.testing.pipe import Pipe


def test_nobody_else_reads_what_is_in_the_data_directory(one_pipe: Pipe) -> None:
    one_pipe.datagrams(b"a", b"b")
    one_pipe.settled()
    names = {path.name for path in one_pipe.data_dir.rglob("*")}
    assert {"topics", "buffers"} <= names
    assert any(name.endswith(".arrows") for name in names)
    open_to_others = {
        str(path.relative_to(one_pipe.data_dir)): oct(path.stat().st_mode & 0o777)
        for path in one_pipe.data_dir.rglob("*")
        if path.stat().st_mode & 0o027
    }
    assert open_to_others == {}
