"""What Spark's planner loads of a job's operators, in a process of its own for each batch."""

import subprocess
import sys
from pathlib import Path

import pytest

from errata import Network, tumbling
from errata.processors.compile.compiler import compile_network

pytest.importorskip("pyspark")

ASKED = """
import pickle, sys
class Handle:
    def getMapState(self, name, key, value):
        return f"{name}: {key} -> {value}"
operator = pickle.load(open(sys.argv[1], "rb"))
operator.init(Handle())
print(operator._states)
print(*sys.modules)
"""


def test_an_operator_tells_its_states_without_the_libraries_that_process_rows(tmp_path: Path):
    from pyspark import cloudpickle

    from errata.spark_jobs.job import Job
    from errata.spark_jobs.operator import Operator

    net = Network("asked", place="spark")
    fields = {"key": "string", "at": "timestamp-millis", "n": "long"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("sums", by=[], window=tumbling("1h"), total="sum(n)", keep="1d")
    plan = compile_network(net).placed({"trades": 1})
    job = Job(plan, plan.topology.jobs["sums"], {}, {}, writers=1, keys=(0,))
    operator = Operator(job, 1)
    assert operator.job.scope == job.scope
    (tmp_path / "operator").write_bytes(cloudpickle.dumps(Operator(job, 1)))
    done = subprocess.run(
        [sys.executable, "-c", ASKED, tmp_path / "operator"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    states, modules = done.stdout.splitlines()
    assert states == "states: name string, slab long, number long -> blob binary"
    assert {"polars", "sqlglot", "confluent_kafka", "errata.spark_jobs.stages"}.isdisjoint(
        modules.split()
    )
