"""Renders a network's processes as services of a compose file: v2, or docker-compose from 1.29."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from errata.render.containers import FOLDER, Code, Role

SETTINGS = (
    "SCHEMA_REGISTRY_URL",
    "ERRATA_HTTP__LISTEN",
    "ERRATA_KAFKA__SECURITY_PROTOCOL",
    "ERRATA_KAFKA__SASL_MECHANISM",
    "ERRATA_KAFKA__SASL_USERNAME",
    "ERRATA_KAFKA__SASL_PASSWORD",
)
"""Variables that are passed on if they are set; empty ones are ignored (docs/settings.md)."""


def compose_file(roles: Sequence[Role], *, code: Code, image: str, folder: Path) -> dict[str, Any]:
    """Return a compose file.

    Args:
        roles: The processes.
        code: Where containers find the network.
        image: The image of all of them; ``ERRATA_IMAGE`` is used instead if it is set.
        folder: The folder of the file.
    """
    deploy = Role("deploy", ("deploy", code.reference))
    once = {"restart": "no"}
    services = {deploy.name: _service(deploy, code, image, folder) | once}
    dependencies = {"deploy": {"condition": "service_completed_successfully"}}
    for role in roles:
        services[role.name] = _service(role, code, image, folder) | {"depends_on": dependencies}
    disks: dict[str, Any] = {role.name: {} for role in roles if role.replicas is None}
    return {"services": services} | ({"volumes": disks} if disks else {})


def _service(role: Role, code: Code, image: str, folder: Path) -> dict[str, Any]:
    needed = "${KAFKA_BOOTSTRAP_SERVERS:?needs to be set to the cluster: HOST:PORT}"
    volumes = []
    if role.replicas is None and role.name != "deploy":
        volumes.append(f"{role.name}:/var/lib/errata")
    if code.file is not None:
        volumes.append(f"{_relative(code.file, folder)}:{FOLDER}/{code.file.name}:ro")
    return {
        "image": f"${{ERRATA_IMAGE:-{image}}}",
        "command": list(role.arguments),
        "environment": {
            "KAFKA_BOOTSTRAP_SERVERS": needed,
            **{name: f"${{{name}:-}}" for name in SETTINGS},
        },
        **({"volumes": volumes} if volumes else {}),
        **({"scale": role.replicas} if role.replicas is not None else {}),
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": "unless-stopped",
        "stop_grace_period": "10s",
    }


def _relative(file: Path, folder: Path) -> str:
    """Return a file's path relative to a folder; the dot in front keeps it from naming a volume."""
    relative = Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()
    return relative if relative.startswith("..") else f"./{relative}"
