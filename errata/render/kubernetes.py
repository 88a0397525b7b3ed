"""Renders a network for Kubernetes: a Deployment for each scope, a StatefulSet for each disk.

All Pods meet the strictest profile of the Pod Security Standards. Only memory is limited: a CPU
limit would make a task wait in the middle of a commit. Topics are rendered for Strimzi, if only its
Topic Operator may create them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from errata.render.containers import FOLDER, Code, Role, digest, labels
from errata.topics.settings import TopicSpec

PORT = 9464
"""The port for health and metrics of every process."""

_STATE = {"name": "state", "mountPath": "/var/lib/errata"}
_UNIT = {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
_SPARK = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "4Gi"}}
_GRACE_S = 30
"""The grace period; a process ends within 10 s of SIGTERM."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Parameters:
    """The parameters of the manifests.

    Args:
        network: The network's name.
        code: Where containers find the network.
        image: The image of all processes.
        settings: Name of the ConfigMap whose entries are environment variables.
        secrets: Name of the Secret whose entries are, too, if it exists.
        disk: Size of a sweeper's volume.
    """

    network: str
    code: Code
    image: str
    settings: str
    secrets: str
    disk: str

    @property
    def name(self) -> str:
        """The network's name as a DNS label."""
        return self.of()

    def of(self, part: str = "") -> str:
        """Return the name of an object of the network."""
        name = f"{self.network}.{part}"
        return labels([name])[name]


def manifests(parameters: Parameters, roles: Sequence[Role]) -> Iterator[Object]:
    """Yield the objects in the order of their dependencies."""
    name = parameters.name
    if parameters.code.file is not None:
        data = {parameters.code.file.name: parameters.code.text}
        yield _object(parameters, "v1", "ConfigMap", parameters.of("network")) | {"data": data}
    yield _object(parameters, "v1", "Service", name) | {
        "spec": {  # names the StatefulSets' Pods, and lets Prometheus scrape all Pods
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "ports": [{"name": "http", "port": PORT}],
            "selector": _selector(parameters),
        }
    }
    on_spark = any(role.arguments[0] == "spark" for role in roles)
    # A new version needs the old version's jobs, and so Spark's memory.
    yield _job(parameters, _SPARK if on_spark else _UNIT)
    for role in roles:
        if role.replicas is None:
            yield _stateful_set(parameters, role)
            continue
        yield _deployment(parameters, role)
        if role.replicas > 1:
            yield _object(
                parameters, "policy/v1", "PodDisruptionBudget", parameters.of(role.name), role.name
            ) | {"spec": {"maxUnavailable": 1, "selector": _match(parameters, role)}}


def _object(
    parameters: Parameters, version: str, kind: str, name: str, component: str | None = None
) -> Object:
    labelled = _labels(parameters, component)
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labelled}}


def _selector(parameters: Parameters, component: str | None = None) -> dict[str, str]:
    selector = {"app.kubernetes.io/name": "errata", "app.kubernetes.io/instance": parameters.name}
    return selector | ({"app.kubernetes.io/component": component} if component else {})


def _labels(parameters: Parameters, component: str | None) -> dict[str, str]:
    return _selector(parameters, component) | {"app.kubernetes.io/managed-by": "errata-render"}


def _match(parameters: Parameters, role: Role) -> Object:
    return {"matchLabels": _selector(parameters, role.name)}


def _deployment(parameters: Parameters, role: Role) -> Object:
    spec = {
        "replicas": role.replicas,
        "selector": _match(parameters, role),
        "template": _pod(parameters, role, restart="Always"),
    }
    name = parameters.of(role.name)
    return _object(parameters, "apps/v1", "Deployment", name, role.name) | {"spec": spec}


def _stateful_set(parameters: Parameters, role: Role) -> Object:
    """Return a StatefulSet: one process with its own volume."""
    claim = {
        "metadata": {"name": _STATE["name"]},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": parameters.disk}},
        },
    }
    spec = {
        "replicas": 1,
        "serviceName": parameters.name,
        "selector": _match(parameters, role),
        "template": _pod(parameters, role, restart="Always", has_volume=True),
        "volumeClaimTemplates": [claim],
    }
    name = parameters.of(role.name)
    return _object(parameters, "apps/v1", "StatefulSet", name, role.name) | {"spec": spec}


def _job(parameters: Parameters, resources: Object) -> Object:
    """Return the Job that deploys the plan; Jobs can't change, so each image or file has its own.

    It is deleted an hour after it succeeded. It fails if repetitions don't help.
    """
    role = Role("deploy", ("deploy", parameters.code.reference))
    content = f"{parameters.image} {parameters.code.reference} {_digest(parameters)}"
    name = f"{parameters.of(role.name)}-{digest(content)}"
    template = _pod(parameters, role, restart="OnFailure", has_port=False)
    template["spec"]["containers"][0]["resources"] = resources
    spec = {"backoffLimit": 6, "ttlSecondsAfterFinished": 3600, "template": template}
    return _object(parameters, "batch/v1", "Job", name, role.name) | {"spec": spec}


def _pod(
    parameters: Parameters,
    role: Role,
    *,
    restart: str,
    has_volume: bool = False,
    has_port: bool = True,
) -> Object:
    is_file = parameters.code.file is not None
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}, _STATE]
    if not has_volume:  # its content can be read again from the topics
        volumes.append({"name": _STATE["name"], "emptyDir": {}})
    if is_file:
        volumes.append({"name": "network", "configMap": {"name": parameters.of("network")}})
        mounts.append({"name": "network", "mountPath": FOLDER, "readOnly": True})
    container: Object = {
        "name": "errata",
        "image": parameters.image,
        "args": list(role.arguments),
        "envFrom": [
            {"configMapRef": {"name": parameters.settings}},
            {"secretRef": {"name": parameters.secrets, "optional": True}},
        ],
        "resources": _SPARK if role.arguments[0] == "spark" else _UNIT,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    if has_port:
        container |= _served()
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # their variables would be taken for settings
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    metadata: Object = {"labels": _labels(parameters, role.name)}
    if is_file:  # a changed file restarts the Pods
        metadata["annotations"] = {"errata/network": _digest(parameters)}
    return {"metadata": metadata, "spec": spec}


def _served() -> Object:
    """Return the port of a process, and its probes (docs/operations.md)."""
    return {
        "env": [{"name": "ERRATA_HTTP__LISTEN", "value": f"0.0.0.0:{PORT}"}],
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "http"},
            "initialDelaySeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "http"},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
    }


def _digest(parameters: Parameters) -> str:
    text = "" if parameters.code.file is None else parameters.code.text
    return digest(text)


def topic_resources(
    specs: Sequence[TopicSpec], *, cluster: str, copies: int | None
) -> Iterator[dict[str, Any]]:
    """Yield a KafkaTopic for each topic.

    Args:
        specs: The topics.
        cluster: Name of the Kafka resource that they belong to.
        copies: Copies of each partition; None for the broker's default.
    """
    for spec in specs:
        yield {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "KafkaTopic",
            "metadata": {"name": _name(spec.name), "labels": {"strimzi.io/cluster": cluster}},
            "spec": {
                "topicName": spec.name,
                "partitions": spec.partitions,
                **({} if copies is None else {"replicas": copies}),
                "config": dict(spec.config),
            },
        }


def _name(topic: str) -> str:
    """Return a topic's name if it is valid for a resource, else a unique name."""
    if re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", topic):
        return topic
    return f"{re.sub('[^a-z0-9]+', '-', topic.lower()).strip('-')[:200]}-{digest(topic)}"
