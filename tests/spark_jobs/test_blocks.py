"""Dead letters of a job, before the driver sends them."""

import polars as pl
import pytest

from errata import Network, python, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.tasks.on_error import STOP
from errata.processors.tasks.scope_run import BoxError
from errata.processors.wire.replay import pack
from errata.schemas import revisions as frames
from errata.spark_jobs.driver import register
from errata.spark_jobs.epochs import Batch
from errata.spark_jobs.executor import Recorder
from errata.spark_jobs.job import Job
from errata.spark_jobs.place import Place
from errata.spark_jobs.routing import REVISIONS, Row, pack_dead_letters, unpack_dead_letters
from errata.spark_jobs.stages import write
from errata.topics import names
from errata.topics.cluster import TopicPartition
from errata.topics.memory import MemoryCluster
from errata.topics.registry_server import registry

BATCH = Batch(after=3, epoch=7, wm_before=0, wm=10)


def fussy(n):
    if n == 13:
        raise ValueError("thirteen")
    return True


def made(**more):
    net = Network("letters")
    fields = {"key": "string", "at": "timestamp-millis", "n": "long"}
    source = net.source("s", fields=fields, identity=["key"], event_time="at", keep="1d")
    front = source.where("picky", python(fussy, "boolean", "n")).map("doubled", m="n * 2")
    front.aggregate("job", by=["n"], window=tumbling("1m"), place="spark", c="count(*)")
    plan = compile_network(net).placed({"s": 2})
    cluster = MemoryCluster()
    cluster.create(names.SCHEMAS_TOPIC, 1)
    recorder = Recorder(registry(cluster))
    job = Job(
        plan, plan.topology.scopes["job"], {}, recorder.ids, 2, (3, 7), (4, 5), (3, 7), **more
    )
    register(job, recorder)
    rows = {"key": ["a", "b", "c"], "at": [1, 2, 3], "n": [13, 7, 13]}
    _, (refused,) = plan.boxes["picky"].applied(pl.DataFrame(rows))
    return job, refused


def test_each_tuple_that_a_box_refuses_is_a_letter_with_task_attempt_epoch_and_its_record():
    job, refused = made()
    (block,) = pack_dead_letters(job, BATCH, "picky", [refused], partition=0)
    found = unpack_dead_letters(block)
    assert [box for box, _ in found] == ["picky", "picky"]
    first, second = (letter for _, letter in found)
    assert (first.task, first.attempt, first.epoch, first.partition) == ("job.0", 4, 7, 0)
    assert first.detail.startswith("box 'picky', epoch 7: function ")
    assert "'key': 'a'" in first.detail
    assert "'key': 'c'" in second.detail
    assert first.is_of_box
    assert None not in (first.key, first.value)


def test_what_a_partition_has_reported_is_not_told_again():
    job, refused = made()
    assert pack_dead_letters(job, BATCH, "picky", [refused], partition=1) == []


def test_what_a_partition_has_reported_is_not_written_again():
    job, _ = made()
    cluster, topic = MemoryCluster(), job.plan.deployment.topic("job")
    cluster.create(topic, 2)
    tuples = pl.DataFrame({"key": ["a"], "at": [1], "n": [7], "m": [14]})
    block = pack(frames.inserts(job.plan.boxes["job"].recompute(tuples, wm=10**9)), is_small=True)
    rows = [Row(3, REVISIONS, block=block, arc="job", partition=partition) for partition in (0, 1)]
    written = write(job, cluster, BATCH, rows, [], [], number=0)
    assert written.ends.keys() == {Place("job", 0)}
    assert cluster.end(TopicPartition(topic, 1)) == 0


def test_a_refused_tuple_stops_a_job_that_is_to_stop():
    job, refused = made(on_error=STOP)
    with pytest.raises(BoxError, match=r"box 'picky', epoch 7: .*thirteen.*'a'.* on_error"):
        pack_dead_letters(job, BATCH, "picky", [refused], partition=0)


def test_a_job_is_ready_for_letters_of_every_arc_that_it_reads_or_makes():
    job, _ = made()
    for arc in ("s", "picky", "doubled", "job"):
        job.codec(arc)  # an id that executors don't know is a KeyError
