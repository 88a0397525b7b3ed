"""What runs in containers: a process for each scope and sweeper, and Spark; and the network's code.

The code is in their image, or in a mounted file.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from errata.deploy.deployment import UnknownNameError
from errata.deploy.processes import Work, processes
from errata.processors.plan.compiled import CompiledPlan
from errata.schemas.errors import ErrataError
from errata.settings.loading import file_of

LONGEST = 52
"""Longest name: with the suffixes of a StatefulSet's or Job's Pods it has 63 characters at most."""
FOLDER = "/network"
"""The working folder of the image, where a network's file is mounted."""
_LARGEST = 1_000_000


class NotOneFileError(ErrataError):
    """A network can't be mounted in containers as one file."""


@dataclass(frozen=True)
class Role:
    """One kind of process.

    Args:
        name: Its name, a DNS label, different from those of a network's other roles.
        arguments: The arguments of `errata`.
        replicas: How many share the work; None if only one process may run, which has a disk.
    """

    name: str
    arguments: tuple[str, ...]
    replicas: int | None = None


def roles(
    plan: CompiledPlan, reference: str, *, replicas: Mapping[str, int], master: str | None = None
) -> list[Role]:
    """Return all roles; together they run every task of a plan and every sweeper that it asks.

    Args:
        plan: The plan; it need not be placed.
        reference: The network's reference on the container's command line.
        replicas: How many processes share each scope; "" for scopes that are not named.
        master: Where Spark runs; None for its role's own container.

    Raises:
        UnknownNameError: If a scope is named that the network does not have, or that is on Spark.
    """
    shared = plan.topology.process_scopes
    for name in replicas:
        if name and name not in shared:
            raise UnknownNameError(
                f"network {plan.network!r} has no scope {name!r} that processes share: "
                f"{', '.join(shared)}"
            )
    needed = list(processes(plan))
    names = labels([*(process.id for process in needed), "deploy"])
    options = {
        Work.SCOPE: ("--shared",),
        Work.SWEEPER: (),
        Work.JOBS: ("--master", master) if master else (),
    }
    return [
        Role(
            names[process.id],
            (*process.arguments(reference), *options[process.work]),
            replicas.get(process.id, replicas.get("", 1)) if process.work is Work.SCOPE else None,
        )
        for process in needed
    ]


def labels(names: Iterable[str]) -> dict[str, str]:
    """Return a DNS label for each name: lower case; with a digest if it is ambiguous or too long.

    Example:
        >>> labels(["ingest.trades", "Big_sums"])
        {'ingest.trades': 'ingest-trades', 'Big_sums': 'big-sums'}
        >>> labels(["a_b", "a-b"])
        {'a_b': 'a-b-648fa9b3', 'a-b': 'a-b-d44362d6'}
    """
    short = {name: re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") for name in names}
    count = Counter(short.values())
    return {
        name: label
        if count[label] == 1 and len(label) <= LONGEST and label[:1].isalpha()
        else f"{_label_prefix(label)}-{digest(name)}"
        for name, label in short.items()
    }


def digest(text: str) -> str:
    """Return a digest of a text, eight hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _label_prefix(label: str) -> str:
    return (label if label[:1].isalpha() else f"n{label}")[: LONGEST - 9].rstrip("-")


@dataclass(frozen=True)
class Code:
    """A network as containers refer to it.

    Args:
        reference: Its reference on command lines in containers.
        file: Its file; None if it is a module in the image.
    """

    reference: str
    file: Path | None = None

    @property
    def text(self) -> str:
        """The content of the file."""
        assert self.file is not None
        return self.file.read_text(encoding="utf-8")


def code_of(reference: str) -> Code:
    """Return where containers find a network that has just been loaded.

    Raises:
        NotOneFileError: If its file imports others beside it, or is too large for a ConfigMap.
    """
    file, name = file_of(reference)
    if file is None:
        return Code(reference)
    folder = file.resolve().parent
    imported = sorted(
        {
            Path(path).name
            for module in list(sys.modules.values())
            if (path := getattr(module, "__file__", None))
            and Path(path).resolve().parent == folder
            and Path(path).resolve() != file.resolve()
        }
    )
    remedy = "put them in an image made from Errata's, and name the network as module:name"
    if imported:
        raise NotOneFileError(
            f"{file.name} imports {', '.join(imported)} from its folder; {remedy}"
        )
    if file.stat().st_size > _LARGEST:
        raise NotOneFileError(f"{file.name} has more than {_LARGEST} bytes; {remedy}")
    return Code(f"{file.name}:{name}" if name else file.name, file)
