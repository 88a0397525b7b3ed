"""Settings with which brokers may lose acknowledged records are named, with what to do."""

from types import SimpleNamespace

import pytest

from errata.topics import loss_risks as risks
from errata.topics.cluster import ClusterError
from errata.topics.loss_risks import Durability, known_risks, loss_risks, make_durable, sentences
from errata.topics.refused import Right

SAFE = Durability(3, 2, False)


def test_safe_topics_have_no_risk():
    assert not [*sentences({"a": SAFE})]


@pytest.mark.parametrize(
    ("durability", "said"),
    [
        (Durability(1, 1, True), "one replica each"),
        (Durability(3, 1, False), "min.insync.replicas=2"),
        (Durability(3, 2, True), "unclean.leader.election.enable=false"),
    ],
)
def test_each_risk_is_named_with_its_remedy(durability, said):
    (sentence,) = sentences({"safe": SAFE, "risky": durability})
    assert sentence.startswith("risky: ")
    assert said in sentence


def test_many_topics_are_counted():
    (sentence,) = sentences({f"t{n}": Durability(1, 1, False) for n in range(9)})
    assert sentence.startswith("t0, t1, t2 and 6 more topics: ")


class Cluster:
    """A cluster of some brokers, with two topics."""

    def __init__(self, brokers: int) -> None:
        listed = SimpleNamespace(
            brokers=dict.fromkeys(range(brokers)),
            topics={
                "n.a": SimpleNamespace(partitions={0: SimpleNamespace(replicas=[1, 2, 3])}),
                "n.b": SimpleNamespace(partitions={0: SimpleNamespace(replicas=[1])}),
            },
        )
        self.admin = SimpleNamespace(list_topics=lambda timeout: listed)


@pytest.mark.parametrize(("brokers", "count"), [(1, 0), (3, 2)])
def test_only_a_cluster_of_several_brokers_is_judged(brokers, count, monkeypatch):
    monkeypatch.setattr(risks, "Connection", lambda settings: Cluster(brokers))
    monkeypatch.setattr(
        risks,
        "describe_configs",
        lambda connection, topics: {
            name: {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}
            for name in topics
        },
    )
    found = loss_risks({}, ["n.a", "n.b", "n.missing"])
    assert len(found) == count
    assert all(sentence.startswith(("n.a: ", "n.b: ")) for sentence in found)


class Altered(Cluster):
    """A cluster of three brokers that lets topics be altered, or refuses it."""

    def __init__(self, *, refuses: bool) -> None:
        super().__init__(3)
        self.asked: dict[str, dict[str, str]] = {}
        self.admin.incremental_alter_configs = self.alter
        self.refuses = refuses

    def alter(self, resources):
        self.asked = {
            each.name: {entry.name: entry.value for entry in each.incremental_configs}
            for each in resources
        }
        return dict.fromkeys(resources)

    def wait_for(self, what, answer, *, right):
        assert right == Right("AlterConfigs", "Topic", "n.a")
        if self.refuses:
            raise ClusterError("refused")


@pytest.mark.parametrize("refuses", [False, True])
def test_new_topics_are_made_as_safe_as_their_replicas_allow(refuses, monkeypatch):
    cluster = Altered(refuses=refuses)
    monkeypatch.setattr(risks, "Connection", lambda settings: cluster)
    unsafe = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    monkeypatch.setattr(risks, "describe_configs", lambda _, names: dict.fromkeys(names, unsafe))
    make_durable({}, ["n.a", "n.b", "n.missing"])
    assert cluster.asked == {
        "n.a": {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    }


def test_what_can_not_be_known_is_no_risk(monkeypatch):
    def refuse(settings):
        raise ClusterError("no")

    monkeypatch.setattr(risks, "Connection", refuse)
    assert known_risks({}, ["n.a"]) == []


@pytest.mark.kafka
def test_one_broker_is_for_trying_things_out(broker):
    assert loss_risks(broker.settings, ["no.such.topic"]) == []
