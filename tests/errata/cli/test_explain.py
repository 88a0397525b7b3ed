"""What `errata explain` says about a network."""

import json
import re
from pathlib import Path

import pytest

from tests.errata.conftest import Errata
from tests.errata.network_file import write_network

HALF_HOUR_MS, DAY_MS = 1_800_000, 86_400_000


def test_json_tells_modes_and_why_anchors_radii_and_partitioning(
    tmp_path: Path, errata: Errata
) -> None:
    write_network(tmp_path, scope="counting")
    found = json.loads(errata("explain", "tape.py", "--json").out)
    source = found["sources"]["prices"]
    assert source["topic"] == "figure-prices"
    assert source["partition_by"] == ["symbol"]
    assert source["partition_by_from"] == "the groups that sums, counts share"
    assert (source["keep_ms"], source["radius_ms"]) == (DAY_MS, HALF_HOUR_MS)
    sums, counts = found["boxes"]["sums"], found["boxes"]["counts"]
    assert (sums["mode"], sums["anchor"], sums["radius_ms"]) == (
        "downstream",
        "prices",
        HALF_HOUR_MS,
    )
    assert sums["modes"]["upstream"] == {"legal": True, "why": "replays 'prices'"}
    assert (sums["chooses"], counts["chooses"]) == (True, False)
    assert sums["cost"] == {"replayed_ms": 50 * 60_000, "results": 2}
    assert counts["mode"] == "upstream"
    assert counts["modes"]["downstream"]["legal"] is False
    assert "keeps no history" in counts["modes"]["downstream"]["why"]
    assert counts["scope"] == "counting"
    assert found["scopes"]["counting"] == {
        "boxes": ["counts"],
        "inputs": ["plain"],
        "outputs": ["counts"],
        "order": "static",
    }
    topics = {topic["topic"]: topic for topic in found["topics"]}
    assert topics["figure.prices"]["cleanup"] == "compact,delete"
    assert topics["figure.prices"]["partitions"] is None
    assert topics["figure.progress"]["partitions"] == 1
    assert "figure.plain" in topics


def test_declared_partitioning_is_told_as_such(tmp_path: Path, errata: Errata) -> None:
    file = write_network(tmp_path)
    text = file.read_text().replace('format="json"', 'format="json", partition_by=[], partitions=1')
    file.write_text(text)
    found = json.loads(errata("explain", "tape.py", "--json").out)
    assert found["sources"]["prices"]["partition_by_from"] == "declared"
    topics = {topic["topic"]: topic["partitions"] for topic in found["topics"]}
    assert topics["figure.prices"] == 1


@pytest.mark.parametrize(
    ("envelope", "cleanup"), [("native", None), ("debezium", None), ("upsert", "compact")]
)
def test_the_topic_of_a_sink_is_listed(
    tmp_path: Path, errata: Errata, envelope: str, cleanup: str | None
) -> None:
    file = write_network(tmp_path)
    file.write_text(file.read_text() + f"sums.sink('results', envelope='{envelope}')\n")
    found = json.loads(errata("explain", "tape.py", "--json").out)
    topics = {topic["topic"]: topic["cleanup"] for topic in found["topics"]}
    assert topics["results"] == cleanup
    assert "results" in errata("explain", "tape.py").out


def test_people_get_tables(tmp_path: Path, errata: Errata) -> None:
    write_network(tmp_path)
    out = errata("explain", "tape.py").out
    for word in (
        "downstream legal?",
        "no: arc 'counts' keeps no history",
        "figure.progress",
        "30m",
    ):
        assert word in out


def test_it_is_drawn_as_a_graph(tmp_path: Path, errata: Errata) -> None:
    write_network(tmp_path)
    assert errata("explain", "tape.py", "--graph", "svg").out.startswith("<svg ")
    out = errata("explain", "tape.py", "--graph", "mermaid").out
    assert out.startswith("flowchart LR\n")
    assert (
        '["sums<br/>aggregate, adaptive<br/>50m of its group replayed or 2 results fetched"]' in out
    )


def test_a_network_that_can_not_run_is_told_with_all_faults(tmp_path: Path, errata: Errata) -> None:
    file = write_network(tmp_path)
    file.write_text(file.read_text().replace("price > 0", "prize > 0").replace("avg", "nope"))
    done = errata("explain", "tape.py")
    assert done.status == 1
    assert "network 'figure' can't run" in done.err
    assert "tape.py:" in done.err


def test_a_result_that_can_not_be_revised_from_what_is_stored_is_not_legal_downstream(
    tmp_path: Path, errata: Errata
) -> None:
    (tmp_path / "net.py").write_text(
        "from errata import Network, tumbling\n"
        "net = Network('shares')\n"
        "fields = {'id': 'string', 'at': 'timestamp-millis', 'px': 'long'}\n"
        "given = {'identity': ['id'], 'event_time': 'at', 'format': 'json', 'fields': fields}\n"
        "trades = net.source('trades', keep='1d', **given)\n"
        "window, q = tumbling('1m'), 'percentile(px, 0.5)'\n"
        "trades.aggregate('middle', by=['id'], window=window, q=q, keep='1d')\n"
    )
    modes = json.loads(errata("explain", "net.py", "--json").out)["boxes"]["middle"]["modes"]
    assert modes["upstream"]["legal"]
    assert not modes["downstream"]["legal"]
    assert "can't be revised from a stored result" in modes["downstream"]["why"]


def test_it_tells_how_far_results_may_be_off(tmp_path: Path, errata: Errata) -> None:
    file = write_network(tmp_path)
    within = 'significance={"total": "0.1%", "n": 2}'
    text = file.read_text().replace('n="count(*)", keep="1d"', f'n="count(*)", keep="1d", {within}')
    file.write_text(text + 'sums.where("many", "n > 5")\n')
    found = json.loads(errata("explain", "tape.py", "--json").out)["boxes"]
    assert found["sums"]["within"] == {"total": "0.1%", "n": "2"}
    assert "within" not in found["sums-exact"]
    assert set(found["many"]["within"].values()) == {"none: where 'many' may have other tuples"}
    assert re.search(r"│ sums +│ total +│ 0.1%", errata("explain", "tape.py").out)
