"""What Spark's users expect of a source: Delta's changes, a time to go back to."""

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from errata.processors.arcs.partitioner import Spread
from errata.processors.wire.report import INTERVAL_MS
from errata.spark import OptionError, Options
from errata.topics.kafka import KafkaCluster
from tests.spark_jobs.by_hand import World

ZONES = "abcdefgh"
EPOCHS = 12

on_spark = pytest.mark.filterwarnings("ignore")  # of sockets that py4j leaves open


class Zones:
    """A world whose `few` changes at random.

    Args:
        world: The world.
    """

    def __init__(self, world: World) -> None:
        self.world, self.chance = world, random.Random(5)
        self.now: dict[str, dict[str, Any]] = {}
        self.after: list[dict[str, int]] = [{}]
        self.made = 0
        spread = Spread(world.plan.topology.arcs["few"], 2)
        places = spread.places(pl.DataFrame({"zone": list(ZONES)}))
        self.places = dict(zip(ZONES, places, strict=True))

    def go_on(self, epochs: int) -> None:
        """Write some epochs, each with revisions of some zones."""
        for _ in range(epochs):
            rows: dict[int, list[Any]] = {0: [], 1: []}
            for zone in self.chance.sample(ZONES, 3):
                before = self.now.get(zone)
                gone = before is not None and self.chance.random() < 0.4
                at = 1_000 * self.chance.randrange(100)
                after = None if gone else {"zone": zone, "at": at, "n": self.chance.randrange(9)}
                rows[self.places[zone]].append((before, after))
                self.now |= {} if after is None else {zone: after}
                if after is None:
                    del self.now[zone]
            self.made += 1
            for place, made in rows.items():
                written = [("few", place, self.world.revisions("few", *made))] if made else []
                self.world.commit(f"trades.{place}", self.made, *written)
            self.after.append({zone: row["n"] for zone, row in self.now.items()})

    def reader(self, of: Any, **options: Any) -> Any:
        """Return a data frame of `few`."""
        given = {
            "network": self.world.plan.network,
            "arc": "few",
            "kafka.bootstrap.servers": self.world.servers,
        }
        return of.format("errata").options(**given, **options).load()


@pytest.fixture(scope="module")
def zones(cluster: KafkaCluster, broker: Any) -> Iterator[Zones]:
    world = World(cluster, broker.settings, "zones")
    made = Zones(world)
    made.go_on(EPOCHS)
    yield made
    world.close()


@pytest.fixture(scope="module")
def plain(spark: Any) -> Any:
    """A session with which nobody has registered anything."""
    return spark.newSession()


def content(table: Any) -> dict[str, int]:
    return dict(map(tuple, table.select("zone", "n").collect()))


@on_spark
@pytest.mark.spark
@pytest.mark.kafka
def test_the_source_is_there_without_a_registration_as_of_any_epoch_and_time(
    zones: Zones, plain: Any
) -> None:
    for number in (1, EPOCHS // 2, EPOCHS):
        epoch = zones.world.epoch + number
        moment = dt.datetime.fromtimestamp(epoch * INTERVAL_MS / 1000, dt.UTC)
        later = moment + dt.timedelta(milliseconds=INTERVAL_MS - 1)
        for option in (
            {"asOfEpoch": epoch},
            {"timestampAsOf": moment.isoformat()},
            {"timestampAsOf": later.isoformat()},
            {"timestampAsOf": moment.replace(tzinfo=None).isoformat(" ")},
        ):
            assert content(zones.reader(plain.read, **option)) == zones.after[number], option


@on_spark
@pytest.mark.spark
@pytest.mark.kafka
def test_a_table_that_follows_the_changes_stays_equal(
    zones: Zones, plain: Any, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    plain.createDataFrame([], "zone string, n long").write.parquet(f"{table}/-1")

    def merge(changes: Any, number: int) -> None:
        session = changes.sparkSession
        changes.createOrReplaceTempView("changes")
        session.read.parquet(f"{table}/{number - 1}").createOrReplaceTempView("last")
        session.sql(
            """
            with newest as (
                select zone, max_by(struct(n, _change_type), _commit_version) as now
                from changes where _change_type <> 'update_preimage' group by zone
            )
            select zone, n from last where zone not in (select zone from newest)
            union all
            select zone, now.n from newest where now._change_type <> 'delete'
            """
        ).write.mode("overwrite").parquet(f"{table}/{number}")

    options = {"content": "changes", "maxRecordsPerTrigger": 4}
    for more in (0, 3):
        zones.go_on(more)
        stream = zones.reader(plain.readStream, **options).writeStream.foreachBatch(merge)
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).start().awaitTermination()
        newest = max(int(folder.name) for folder in Path(table).iterdir())
        assert newest > 2
        assert content(plain.read.parquet(f"{table}/{newest}")) == zones.after[-1]
    changes = zones.reader(plain.read, content="changes")
    by_type = changes.groupBy("_change_type").count().collect()
    counts = {row["_change_type"]: row["count"] for row in by_type}
    assert counts["update_preimage"] == counts["update_postimage"] > 3
    assert counts["insert"] - counts["delete"] == len(zones.after[-1])
    when = changes.selectExpr("_commit_version", "unix_millis(_commit_timestamp) as at").collect()
    assert all(row["at"] == row["_commit_version"] * INTERVAL_MS for row in when)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"timestampAsOf": "noon"}, "needs a time such as 2026-01-31T12:00:00Z, found 'noon'"),
        ({"as_of": "3", "timestampAsOf": "2026-01-01"}, "say the same: give one of them"),
        ({"maxRecordsPerTrigger": "0"}, "needs a number of at least 1, found '0'"),
        ({"content": "changes feed"}, "needs one of 'table', 'revisions', 'changes', found"),
    ],
)
def test_a_bad_option_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Options.of({"network": "n", "arc": "a"} | given)
