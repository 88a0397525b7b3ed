"""What `errata render` makes: every task, sweeper and topic once, in files that others take."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from errata.processors.compile.compiler import compile_network
from errata.processors.plan.compiled import CompiledPlan
from errata.processors.plan.deployed import topic_specs
from errata.render.compose import compose_file
from errata.render.containers import code_of, labels, roles
from errata.render.kubernetes import PORT, Parameters, manifests, topic_resources
from errata.render.yaml import to_yaml
from errata.settings.loading import load
from errata.settings.place import DAY_MS
from tests.errata.conftest import Errata

NETWORK = """
from errata import Network, tumbling

net = Network("Big_Tape")
trades = net.source(
    "trades", topic="trades", format="json", keep="1d", identity=["key"], event_time="at",
    fields={"key": "string", "at": "timestamp-millis", "symbol": "string", "price": "long"},
    rekey=True,
)
window = dict(window=tumbling("1m"), keep="1d")
up = trades.aggregate("up", by=["symbol"], top="max(price)", scope="work_1", **window)
trades.aggregate("down", by=["symbol"], n="count(*)", scope="work-1", **window)
trades.aggregate("bars", by=["symbol"], place="spark", n="count(*)", **window)
up.sink("out_side", envelope="upsert")
"""
DNS = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "tape.py").write_text(NETWORK)
    return str(tmp_path / "tape.py")


@pytest.fixture
def plan(net: str) -> CompiledPlan:
    return compile_network(load(net)).placed({"trades": 4})


def found_in(plan: CompiledPlan, net: str, **replicas: int) -> list[dict]:
    code = code_of(net)
    made = roles(plan, code.reference, replicas=replicas)
    return [*manifests(Parameters(plan.network, code, "mine:1", "given", "hidden", "5Gi"), made)]


def pods(objects: list[dict]) -> dict[str, dict]:
    kinds = ("Deployment", "StatefulSet", "Job")
    return {o["metadata"]["name"]: o["spec"]["template"] for o in objects if o["kind"] in kinds}


def test_every_task_and_sweeper_is_run_by_one_workload(plan: CompiledPlan, net: str):
    commands = [p["spec"]["containers"][0]["args"] for p in pods(found_in(plan, net)).values()]
    ours = [name for name, scope in plan.topology.scopes.items() if not scope.on_spark]
    wanted = [["run", "tape.py", "--scope", s, "--shared"] for s in ("ingest.trades", *ours)]
    wanted += [["sweep", "tape.py", "--arc", arc] for arc in plan.replayed_points()]
    wanted += [["spark", "tape.py"], ["deploy", "tape.py"]]
    assert Counter(map(tuple, commands)) == Counter(map(tuple, wanted))
    assert {"work_1", "work-1", "trades-owner"} <= set(ours)
    assert plan.replayed_points()


def test_every_command_is_one_of_erratas(plan: CompiledPlan, net: str, errata: Errata):
    for pod in pods(found_in(plan, net)).values():
        ended = errata(*pod["spec"]["containers"][0]["args"])
        assert ended.status == 1, ended.err  # not 2: it gets as far as asking for a cluster
        assert "KAFKA_BOOTSTRAP_SERVERS" in ended.err


def test_what_kubernetes_is_told_fits_together(plan: CompiledPlan, net: str):
    objects = found_in(plan, net, **{"": 2, "work_1": 1})
    names = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(set(names)) == len(names)
    for _, name in names:
        assert DNS.fullmatch(name), name
        assert len(name) <= 63
    (service,) = (o for o in objects if o["kind"] == "Service")
    budgets = [o["spec"]["selector"] for o in objects if o["kind"] == "PodDisruptionBudget"]
    selectors = []
    for each in objects:
        if each["kind"] not in ("Deployment", "StatefulSet"):
            continue
        spec, pod = each["spec"], each["spec"]["template"]
        selectors.append(spec["selector"]["matchLabels"])
        assert selectors[-1].items() <= pod["metadata"]["labels"].items()
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        assert container["ports"] == [{"name": "http", "containerPort": PORT}]
        assert {"name": "ERRATA_HTTP__LISTEN", "value": f"0.0.0.0:{PORT}"} in container["env"]
        probed = [container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
        assert [p["path"] for p in probed] == ["/healthz", "/readyz"]
        assert {p["port"] for p in probed} == {"http"}
        assert (spec["selector"] in budgets) == (spec["replicas"] > 1)
        claims = [c["metadata"]["name"] for c in spec.get("volumeClaimTemplates", ())]
        there = [v["name"] for v in pod["spec"]["volumes"]] + claims
        assert Counter(there) == Counter(mount["name"] for mount in container["volumeMounts"])
        if each["kind"] == "StatefulSet":
            assert spec["serviceName"] == service["metadata"]["name"]
            assert (claims, spec["replicas"]) == (["state"], 1)
    assert len({json.dumps(s) for s in selectors}) == len(selectors)
    replicas = {
        (o["kind"], o["metadata"]["name"]): o.get("spec", {}).get("replicas") for o in objects
    }
    assert replicas["Deployment", "big-tape-ingest-trades"] == 2
    assert 1 in replicas.values()
    for pod in pods(objects).values():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
        assert spec["containers"][0]["image"] == "mine:1"
        sources = [next(iter(each.values()))["name"] for each in spec["containers"][0]["envFrom"]]
        assert sources == ["given", "hidden"]


def test_a_changed_file_is_another_job_and_starts_pods_anew(plan: CompiledPlan, net: str):
    before = pods(found_in(plan, net))
    Path(net).write_text(NETWORK + "# changed\n")
    after = pods(found_in(plan, net))
    assert len(before.keys() - after.keys()) == 1
    for name in before.keys() & after.keys():
        annotations = [each[name]["metadata"]["annotations"] for each in (before, after)]
        assert annotations[0] != annotations[1]


def test_the_networks_file_comes_as_it_is(plan: CompiledPlan, net: str):
    first = found_in(plan, net)[0]
    assert first["data"] == {"tape.py": NETWORK}
    assert found_in(plan, "errata.demo.bars:net")[0]["kind"] == "Service"


RELEASES = sorted(set(kubernetes_validate.utils.all_versions()), key=lambda v: int(v.split(".")[1]))


@pytest.mark.parametrize("release", RELEASES[-6:])
def test_the_schemas_of_kubernetes_allow_what_is_rendered(
    plan: CompiledPlan, net: str, release: str
):
    """Strictly: no field is unknown."""
    for each in yaml.safe_load(to_yaml(found_in(plan, net, **{"": 2}))):
        kubernetes_validate.validate(each, release, strict=True)


def test_strimzi_allows_what_is_rendered(plan: CompiledPlan):
    """What the operator itself refuses, its schema does not: settings that are not plain."""
    count, text = {"type": "integer", "minimum": 1}, {"type": "string", "minLength": 1}
    label = text | {"maxLength": 63, "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"}
    settings = {"additionalProperties": {"type": ["string", "integer", "boolean"]}}
    schema = of(
        apiVersion={"const": "kafka.strimzi.io/v1"},
        kind={"const": "KafkaTopic"},
        metadata=of(name=text | {"maxLength": 253}, labels=of(**{"strimzi.io/cluster": label})),
        spec=of(
            topicName=text | {"maxLength": 249},
            partitions=count,
            replicas=count | {"maximum": 32_767},
            config={"type": "object"} | settings,
        ),
    )
    made = [*topic_resources(topic_specs(plan, compaction_lag_ms=DAY_MS), cluster="c", copies=3)]
    assert made
    for each in yaml.safe_load(to_yaml(made)):
        jsonschema.validate(each, schema)


def of(**fields: dict) -> dict:
    """Return the schema of an object that has these fields and no others."""
    names = [*fields]
    return {
        "type": "object", "properties": fields, "required": names, "additionalProperties": False
    }  # fmt: skip


def test_every_topic_of_the_plan_is_rendered_once(plan: CompiledPlan):
    specs = topic_specs(plan, compaction_lag_ms=DAY_MS)
    made = [*topic_resources(specs, cluster="mine", copies=3)]
    told = [(m["spec"]["topicName"], m["spec"]["partitions"], m["spec"]["config"]) for m in made]
    assert told == [(s.name, s.partitions, dict(s.config)) for s in specs]
    names = [m["metadata"]["name"] for m in made]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name) for name in names)
    assert {m["spec"]["replicas"] for m in made} == {3}
    assert {m["metadata"]["labels"]["strimzi.io/cluster"] for m in made} == {"mine"}
    assert {"Big_Tape.trades.exchange", "out_side", "_errata_schemas"} <= {t[0] for t in told}
    assert "trades" not in {t[0] for t in told}  # the user's own


def test_names_that_would_be_one_are_kept_apart():
    names = labels(["a.b", "a_b", "c" * 80, "9", "_"])
    assert len(set(names.values())) == 5
    assert all(DNS.fullmatch(name) and len(name) <= 52 for name in names.values())


def test_compose_takes_the_file(plan: CompiledPlan, net: str, tmp_path: Path, errata: Errata):
    made = roles(plan, "tape.py", replicas={"": 2})
    services = compose_file(made, code=code_of(net), image="mine:1", folder=tmp_path)["services"]
    assert services["sweep-trades"]["volumes"][0] == "sweep-trades:/var/lib/errata"
    assert services["ingest-trades"]["volumes"] == ["./tape.py:/network/tape.py:ro"]
    assert services["ingest-trades"]["scale"] == 2
    ended = errata("render", "compose", "tape.py", "--replicas", "2", "-o", "deploy")
    assert (ended.status, ended.out) == (0, ""), ended.err
    if shutil.which("docker-compose") is None:
        return  # tests/containers use it
    done = subprocess.run(
        ["docker-compose", "-f", "deploy/docker-compose.yml", "config", "--services"],
        cwd=tmp_path, env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == services.keys()


def test_files_of_others_are_left_alone(net: str, tmp_path: Path, errata: Errata):
    (tmp_path / "docker-compose.yml").write_text("services: {}\n")
    ended = errata("render", "compose", "tape.py", "-o", ".")
    assert ended.status == 1
    assert "`errata render` did not write it" in ended.err
    assert errata("render", "k8s", "tape.py", "-o", ".").status == 0
    first = (tmp_path / "k8s.yaml").read_text()
    assert errata("render", "k8s", "tape.py", "-o", ".").status == 0
    assert (tmp_path / "k8s.yaml").read_text() == first


def test_a_file_that_needs_others_is_refused(net: str, tmp_path: Path, errata: Errata):
    (tmp_path / "neighbour_of_tape.py").write_text("n = 1\n")
    Path(net).write_text("import neighbour_of_tape\n" + NETWORK)
    ended = errata("render", "k8s", "tape.py")
    assert ended.status == 1
    assert "imports neighbour_of_tape.py from its folder" in ended.err


def test_wrong_options_are_told(net: str, errata: Errata):
    assert "no scope 'works'" in errata("render", "k8s", "tape.py", "--replicas", "works=2").err
    assert errata("render", "k8s", "tape.py", "--replicas", "work_1=two").status == 2
    assert errata("render", "topics", "tape.py", "--source", "other=4").status == 2
    found = errata("render", "topics", "tape.py", "--source", "trades=4")
    assert found.status == 0
    assert found.out.count("kind: KafkaTopic") == len(set(re.findall("topicName: .*", found.out)))
