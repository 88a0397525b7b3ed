"""`errata deploy` moves a running network from 2 partitions to 1 and to 4, over a real broker."""

import json
import os
import signal

import pytest

from tests.errata.running import Running

pytestmark = pytest.mark.kafka


def test_a_network_moves_to_other_numbers_of_partitions_while_it_runs(running: Running):
    running.declare(2)
    first = running.errata("deploy", "moved.py")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["version"] == 1
    up = running.start()
    running.wait_for(lambda: "started tasks" in running.log.read_text(), "up")
    for version, partitions in ((2, 1), (3, 4)):
        running.send(300)
        running.wait_for(running.at_work, "taken in")
        running.declare(partitions)
        refused = running.errata("run", "moved.py", "--scope", "up")
        assert refused.returncode == 1
        assert "run `errata deploy` to move its tuples" in refused.stderr
        running.send(100)
        moved = running.errata("deploy", "moved.py")
        assert moved.returncode == 0, moved.stderr
        told = json.loads(moved.stdout)
        assert told["version"] == version
        changed = {c["name"]: (c["before"], c["after"]) for c in told["changes"]}
        before = {2: 2, 3: 1}[version]
        assert changed == dict.fromkeys(("prices", "up", "down"), (before, partitions))
        assert up.poll() is None, running.log.read_text()
    running.send(200)
    assert running.errata("end", "moved.py", "prices").returncode == 0
    for arc in ("up", "down"):
        running.wait_for(lambda arc=arc: running.found(arc) == running.wanted(), arc)
    again = running.errata("deploy", "moved.py")
    assert json.loads(again.stdout) == {"network": running.name, "version": 3, "changes": []}
    os.kill(up.pid, signal.SIGTERM)
    assert up.wait(15) == 0
    assert "Traceback" not in running.log.read_text()
