"""The steps of a job: which boxes run together, and in which stage."""

from errata import Network, Stream, sliding, tumbling
from errata.processors.compile.compiler import compile_network
from errata.spark_jobs.steps import Step, steps_of

FIELDS = {"key": "string", "at": "timestamp-millis", "desk": "string", "n": "long"}


def steps(net: Network, job: str) -> list[Step]:
    plan = compile_network(net)
    plan = plan.placed(dict.fromkeys(plan.topology.sources, 3))
    return steps_of(plan, plan.topology.scopes[job], writers=2)


def told(found: list[Step]) -> list[tuple[int, tuple[str, ...], tuple[str, ...], int, bool]]:
    return [
        (s.level, tuple(box.arc.name for box in s.boxes), s.inputs, s.slots, s.is_grouped)
        for s in found
    ]


def network() -> Network:
    net = Network("stepped", place="spark")
    net.source(
        "trades", fields=FIELDS, identity=["key"], event_time="at", keep="1d", partition_by=["key"]
    )
    return net


def test_filters_behind_an_input_run_where_it_is_read_and_each_exchange_begins_a_stage() -> None:
    net = network()
    few = Stream(net, "trades").where("few", "n > 1")
    lagged = few.lag("lagged", by=["desk"], was="n")
    rows = lagged.aggregate("rows", by=["desk"], window=sliding(rows=2), s="sum(n)")
    rows.aggregate("sums", by=["desk"], window=tumbling("1m"), s="sum(s)", keep="1d")
    assert told(steps(net, "few")) == [
        (0, ("few", "lagged.exchange"), ("trades",), 0, False),
        (1, ("lagged", "rows"), ("lagged.exchange",), 3, False),
        (2, ("sums",), ("rows",), 2, True),
    ]


def test_what_goes_to_a_topic_is_not_written_where_the_input_is_read() -> None:
    net = network()
    few = Stream(net, "trades").where("few", "n > 1", scope="own", keep="1d")
    few.map("twice", m="n * 2", scope="own", keep="1d")
    assert told(steps(net, "own")) == [
        (0, (), ("trades",), 0, False),
        (1, ("few", "twice"), ("trades",), 3, False),
    ]


def test_arcs_of_two_steps_of_one_stage_meet_in_the_next() -> None:
    net = network()
    trades = Stream(net, "trades")
    by_desk = trades.where("few", "n > 1").lag("lagged", by=["desk"], was="n")
    by_key = trades.where("many", "n > 0").lag("own", by=["desk"], was="n")
    net.union("both", by_desk, by_key, tag="from", keep="1d")
    found = told(steps(net, "few"))
    assert [(level, boxes) for level, boxes, *_ in found if level] == [
        (1, ("lagged",)),
        (1, ("own",)),
        (2, ("both",)),
    ]
