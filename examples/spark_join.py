"""Revised totals in Spark: joined with a Parquet table, and as they were before a correction.

A morning of real credit swaps, with its real corrections (errata/demo/data/ATTRIBUTION), on an
embedded broker. Needs the extras `broker` and `spark`; draws with matplotlib where it is installed,
and prints otherwise. Each `# %%` begins a cell of a notebook.
"""

# %% A broker of one's own, and a network of one source and its hourly totals
import atexit
import json
import tempfile
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

from errata import Network, tumbling
from errata.demo.ticker import revision, tape
from errata.observe.network_progress import current
from errata.run.worker import Worker
from errata.settings.place import Place
from errata.spark import register
from errata.spark_jobs.session import open_session
from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.cluster import TopicPartition
from errata.topics.kafka import KafkaCluster
from errata.topics.settings import TopicSpec

TOPIC, PARTITIONS = "swaps", 2
running = ExitStack()
atexit.register(running.close)
folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="errata-example-")))
broker = running.enter_context(EmbeddedBroker())

net = Network("swaps")
trades = net.source(
    "trades",
    topic=TOPIC,
    envelope="native",
    format="json",
    fields={
        "key": "string",
        "at": "timestamp-millis",
        "currency": "string",
        "notional": "decimal(18,2)",
    },
    identity=["key"],
    event_time="at",
    partition_by=["currency"],
    keep="10y",
)
trades.aggregate(
    "hourly",
    by=["currency"],
    window=tumbling("1h"),
    emit="on_update",  # totals of hours that are not over, too
    traded="sum(notional)",
    trades="count(*)",
    keep="10y",
)

# %% The network at work, in a thread of this process
create_topics(broker.settings, [TopicSpec(TOPIC, PARTITIONS)])
worker = Worker(net, Place(broker.settings, folder / "state"))
for scope in ("ingest.trades", *worker.plan.topology.scopes):
    worker.add_scope(scope)
worker.add_sweepers()
stop = threading.Event()
thread = threading.Thread(target=worker.run, args=(stop.is_set,), daemon=True)
thread.start()
running.callback(thread.join)
running.callback(stop.set)  # called first
cluster = KafkaCluster(broker.settings)
running.callback(cluster.close)


def send(revisions: list[dict]) -> int:
    """Send revisions as a feed would; return the epoch in which the totals have taken them in."""
    for each in revisions:
        key = (each["after"] or each["before"])["key"].encode()
        value = json.dumps(each).encode()
        cluster.send(TOPIC, partition=crc32(key) % PARTITIONS, key=key, value=value)
    cluster.flush()
    progress = current(cluster, worker.plan)
    places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    while any(
        progress.of(f"ingest.trades.{place.partition}").resume.get(place, 0) < cluster.end(place)
        for place in places
    ) or any(
        progress.complete("hourly", partition)[0] < progress.newest_epoch()
        for partition in range(PARTITIONS)
    ):
        time.sleep(0.05)
        progress.poll()
    epoch = progress.newest_epoch()
    progress.close()
    return epoch


# %% The tape: first what was traded until 14:00, then what was corrected of it
def plain(trade: dict | None) -> dict | None:
    """Return a trade of the tape as JSON has it."""
    if trade is None or trade["currency"] is None or trade["notional"] is None:
        return None
    at_ms = int(trade["at"].timestamp() * 1000)
    return {
        "key": trade["key"],
        "at": at_ms,
        "currency": trade["currency"],
        "notional": str(trade["notional"]),
    }


lines = [revision(line) for line in tape() if "key" in line]
revisions = [
    {"op": line["op"], "before": plain(line["before"]), "after": plain(line["after"])}
    for line in lines
]
entered = {
    each["after"]["key"]: each for each in revisions if each["op"] == "insert" and each["after"]
}
morning = dict(list(entered.items())[:600])
corrections = [
    each
    for each in revisions
    if each["op"] != "insert" and each["before"] and each["before"]["key"] in morning
]
before = send(list(morning.values()))
after = send(corrections)
print(f"{len(morning)} trades up to epoch {before}; {len(corrections)} corrections up to {after}")

# %% The arc in Spark: a table like any other
few = {"spark.sql.shuffle.partitions": "2"}  # for tables as small as these
spark = register(open_session(master="local[2]", settings=few, log=folder / "spark.log"))
hourly = (
    spark.read.format("errata")
    .option("network", "swaps")
    .option("arc", "hourly")
    .option("kafka.bootstrap.servers", broker.bootstrap_servers)
)
table = hourly.load()
table.printSchema()

# %% ... joined with one of Parquet's
desks = [("USD", "New York"), ("EUR", "London"), ("GBP", "London"), ("JPY", "Tokyo")]
spark.createDataFrame(desks, "currency string, desk string").write.parquet(str(folder / "desks"))
by_desk = table.join(spark.read.parquet(str(folder / "desks")), "currency")
by_desk.groupBy("desk").sum("trades").orderBy("desk").show()


# %% The same series as of two epochs: before the corrections, and after
def series(epoch: int) -> dict[datetime, float]:
    """Return the millions of dollars traded in each hour of the day, as of an epoch."""
    day = hourly.option("as_of", epoch).load().where("currency = 'USD'")
    day = day.where("window_start >= '2026-07-15'").orderBy("window_start")
    rows = day.selectExpr("unix_seconds(window_start)", "cast(traded / 1e6 as double)").collect()
    return {datetime.fromtimestamp(second, UTC): millions for second, millions in rows}


told, corrected = series(before), series(after)
for hour in sorted(told | corrected):
    was, now = told.get(hour, 0.0), corrected.get(hour, 0.0)
    if was != now:
        print(f"{hour:%H}:00  {was:10,.1f} -> {now:10,.1f} million dollars")

# %%
try:
    import matplotlib as mpl
except ImportError:
    mpl = None
if mpl is not None:
    mpl.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4))
    for each, label in ((told, "as first reported"), (corrected, "corrected")):
        axes.step(list(each), list(each.values()), where="post", label=label)
    axes.set(title="Credit swaps of 15 July 2026, by hour", ylabel="million dollars")
    axes.legend()
    figure.savefig("spark_join.svg")
    print("drawn: spark_join.svg")

# %%
running.close()
