"""A writing process that is killed."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

from log_helpers import opened

WRITER = textwrap.dedent("""
    import os, pathlib, sys, threading
    from penstock.counts import Origin
    from penstock.log import Log, TopicSettings
    from penstock.records import body

    log = Log(pathlib.Path(sys.argv[1]), TopicSettings(segment_size_limit=100_000))
    topic = log.topic("t", create=True)

    def write(name):
        number = 0
        while True:
            rows = body([b"%s-%d-%d" % (name, number, k) for k in range(5)])
            done = topic.append(rows, Origin("s", 60, 1, 2)).result()
            os.write(1, b"%d %s %d\\n" % (done.first, name, number))
            number += 1

    for n in range(4):
        threading.Thread(target=write, args=(b"%s.%d" % (sys.argv[2].encode(), n),)).start()
""")


def kill_a_writer(folder, life):
    """What a writer acknowledged (offset -> name) before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(life)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    lines = [process.stdout.readline()]
    time.sleep(random.Random(life).uniform(0.05, 0.4))
    os.kill(process.pid, signal.SIGKILL)
    rest, errors = process.communicate()
    assert lines[0], errors.decode()
    lines += rest.splitlines(keepends=True)
    whole = [line.split() for line in lines if line.endswith(b"\n")]
    return {int(first): b"%s-%s" % (name, number) for first, name, number in whole}


def test_after_sigkill_everything_acknowledged_is_there_whole_and_once(tmp_path):
    acknowledged = {}
    for life in range(4):
        acknowledged |= kill_a_writer(tmp_path, life)
        with opened(tmp_path) as topic:
            table = [s.batch for s in topic.reader().read(0)]
            found = [value for batch in table for value in batch.column("payload").to_pylist()]
            assert topic.gaps() == []
        assert len(set(found)) == len(found)
        assert len(found) % 5 == 0
        assert all(found[n : n + 5] == [found[n][:-1] + b"%d" % k for k in range(5)] for n in range(0, len(found), 5))
        assert all(found[first] == name + b"-0" for first, name in acknowledged.items())
    assert len(acknowledged) > 40
