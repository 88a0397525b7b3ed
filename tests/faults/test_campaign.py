"""The short form of the fault campaign; ``make faults`` is the long one."""

import pytest

from tests.faults.run import main

SHORT = ["--seeds", "1", "--first-seed", "2", "--faults", "4", "--minutes", "0.3"]
KINDS = ["kill", "lose-state", "damage-state", "broker-kill"]


@pytest.mark.kafka
def test_nothing_that_a_network_writes_differs_after_faults(tmp_path, capfd):
    assert main([*SHORT, "--logs", str(tmp_path), "--kinds", *KINDS]) == 0, capfd.readouterr().err
