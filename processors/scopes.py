"""Which boxes run together in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from processors.declarations import Declaration
from processors.declarations import Source as SourceDeclaration
from processors.faults import Fault
from processors.network import Network
from processors.typed import Typed


@dataclass(frozen=True)
class Scope:
    """Boxes that run together in one process, a task a partition, in topological order."""

    name: str
    boxes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def assign_scopes(network: Network, typed: Typed, faults: list[Fault]) -> dict[str, str]:
    """Return the scope of every box: its own choice, else its input's; on a source: its name."""
    scopes: dict[str, str] = {}
    for name, declaration in network.declarations.items():
        if isinstance(declaration, SourceDeclaration):
            scopes[name] = f"ingest.{name}"
        elif declaration.scope is not None:
            scopes[name] = declaration.scope
        else:
            scopes[name] = scopes[declaration.input or ""].removeprefix("ingest.")
    faults += scope_faults(network, typed, scopes)
    return scopes


def scope_faults(network: Network, typed: Typed, scopes: dict[str, str]) -> Iterator[Fault]:
    """Yield what is wrong with a division into scopes."""
    after: dict[str, set[str]] = {}
    for name, declaration in network.declarations.items():
        if declaration.input is None:
            continue
        scope, above = scopes[name], scopes[declaration.input]
        if scope == above:
            continue
        after.setdefault(scope, set()).add(above)
        if reaches(after, above, scope):
            yield Fault(
                name,
                "scopes without a circle",
                f"scope {scope!r} reads from {above!r}, which reads from {scope!r}",
                "put the boxes between them into one scope, or give this box a scope of its own",
                declaration.place,
            )
    for scope in dict.fromkeys(scopes.values()):
        if ("." in scope and not scope.startswith("ingest.")) or not scope:
            yield Fault(scope, "a scope name without dots", repr(scope), "rename the scope")
    for scope, sources in sources_by_scope(network, typed, scopes).items():
        if len(sources) > 1:
            yield Fault(
                scope,
                "boxes that come from one source",
                f"boxes behind {', '.join(sorted(sources))} in one scope",
                "give the boxes behind each source a scope of their own, with scope=",
            )


def sources_by_scope(network: Network, typed: Typed, scopes: dict[str, str]) -> dict[str, set[str]]:
    """Return the sources behind the boxes of each scope."""
    found: dict[str, set[str]] = {}
    for name, declaration in network.declarations.items():
        if declaration.input is not None and name in typed.source_of:
            found.setdefault(scopes[name], set()).add(typed.source_of[name])
    return found


def reaches(after: dict[str, set[str]], start: str, goal: str) -> bool:
    """Whether `goal` is among what `start` reads from, near or far."""
    return start == goal or any(reaches(after, above, goal) for above in after.get(start, ()))


def make_scopes(
    network: Network, typed: Typed, scopes: dict[str, str], written: tuple[str, ...]
) -> dict[str, Scope]:
    """Return the scopes with their boxes, inputs and outputs."""
    members: dict[str, list[Declaration]] = {}
    for name in typed.boxes:
        members.setdefault(scopes[name], []).append(network.declarations[name])
    return {
        scope: Scope(
            name=scope,
            boxes=tuple(d.name for d in boxes),
            inputs=tuple(
                dict.fromkeys(d.input for d in boxes if d.input and scopes[d.input] != scope)
            ),
            outputs=tuple(d.name for d in boxes if d.name in written),
        )
        for scope, boxes in members.items()
    }
