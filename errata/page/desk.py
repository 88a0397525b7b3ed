"""Answers what browsers and programs ask about a network: tables, histories, reasons, letters."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

from errata.client import dead_letters, rows
from errata.client.corrections import closes
from errata.client.identity import identity_fields, identity_texts, wanted
from errata.client.reading import Table, table_of
from errata.client.rows import PlainDecoder
from errata.client.texts import LONGEST_TEXT, shown_texts
from errata.client.told import ArcHistory, Story
from errata.deploy.deployment import DeployedNetwork
from errata.observe.network_progress import Progress, current
from errata.processors.boxes.states import END
from errata.processors.wire.dead_letter import DeadLetter
from errata.render.graph import Graph
from errata.schemas.arc import Arc, visible
from errata.schemas.errors import ErrataError

LONGEST_KEY = 2_000
"""Characters of an identity that fit into an address."""
MOST_REVISIONS = 2_000
"""Most revisions of a history, the newest; it says how many there are."""

Data = dict[str, Any]


class RequestError(ErrataError):
    """A request is malformed."""


class Desk:
    """Answers requests about a network, one at a time.

    Args:
        deployment: The network; this alone uses its connection.
    """

    def __init__(self, deployment: DeployedNetwork) -> None:
        self.deployment = deployment
        self._lock = Lock()

    @contextmanager
    def _progress(self) -> Iterator[Progress]:
        """Yield the reports of the tasks as of now."""
        with self._lock:
            progress = current(self.deployment.cluster, self.deployment.plan)
            try:
                yield progress
            finally:
                progress.close()

    def _arc(self, name: str) -> Arc:
        return self.deployment.plan.topology.arcs[self.deployment.require_topic(name)]

    # ---------------------------------------------------------------- the network

    def network(self) -> Data:
        """Return the graph of the network, and what its arcs hold."""
        plan = self.deployment.plan
        graph, topology = Graph.of(plan), plan.topology
        return {
            "network": plan.network,
            "version": plan.deployment.version,
            "nodes": [vars(node) for node in graph.nodes],
            "edges": [vars(edge) for edge in graph.edges],
            "tasks": {scope: list(plan.placement.tasks(scope)) for scope in topology.all_scopes},
            "arcs": {
                name: {
                    "topic": plan.deployment.topic(name),
                    "partitions": plan.placement.partitions[name],
                    "fields": {n: str(arc.fields[n]) for n in arc.visible},
                    "identity": identity_fields(arc),
                    "has_windows": END in arc.fields,
                    "closes": closes(plan, name),
                    "is_source": name in topology.sources,
                }
                for name in topology.topics
                for arc in [topology.arcs[name]]
                if not arc.exchange
            },
        }

    # ---------------------------------------------------------------- arcs

    def table(self, arc: str, given: Sequence[str], as_of: int | None) -> Table:
        """Return the content of an arc after an epoch.

        Args:
            arc: Its name.
            given: Fields of the identity, as ``FIELD=VALUE``.
            as_of: The epoch; None: the last that is complete.

        Raises:
            UnknownNameError: If there is no such arc with a topic.
            IdentityTextError: If it has no such field.
            EpochAheadError: If the epoch is not complete.
            HistoryLostError: If what the arc held then is gone.
        """
        named = wanted(self._arc(arc), given)
        with self._lock:
            return table_of(self.deployment, arc, as_of=as_of, wait_s=0.0, having=named)

    def history(self, arc: str, given: Sequence[str], *, as_shown: bool) -> Data:
        """Return the revisions that the topic of an arc holds of some tuples, oldest first.

        Args:
            arc: Its name.
            given: Fields of the identity, as ``FIELD=VALUE``.
            as_shown: Whether values are texts to be shown; see `shown`.

        Raises:
            UnknownNameError: If there is no such arc with a topic.
            IdentityTextError: If it has no such field.
        """
        kind = self._arc(arc)
        named = wanted(kind, given)
        with self._progress() as progress:
            found = visible(kind, ArcHistory(self.deployment, progress)(arc, named))
        lines = rows.revisions(kind, found.tail(MOST_REVISIONS))
        if as_shown:
            lines = [sides_shown(kind, line) for line in lines]
        return {"arc": arc, "count": found.height, "revisions": lines}

    def why(
        self,
        arc: str,
        given: Sequence[str],
        *,
        limit: int,
        with_inputs: bool,
        as_shown: bool,
    ) -> list[Data]:
        """Return why a tuple has its values: an explanation for each revision, newest first.

        Raises:
            UnknownNameError: If there is no such arc with a topic, or its source is elsewhere.
            IdentityTextError: If it has no such field.
            NoSuchResultError: If it has no such tuple, or several.
        """
        named = wanted(self._arc(arc), given)
        with self._progress() as progress:
            story = Story(self.deployment, arc, named, progress)
            told = story.explanations(limit)
            plain = [story.plain(each, with_inputs=with_inputs) for each in told]
        return list(map(self._told_shown, plain)) if as_shown else plain

    def _told_shown(self, told: Data) -> Data:
        """Return an explanation with values as texts to be shown."""
        arcs = self.deployment.plan.topology.arcs
        found = sides_shown(arcs[told["arc"]], told)
        for part, name in (("causes", "source"), ("moved_by", "source"), ("between", "arc")):
            if part in told:
                found[part] = [sides_shown(arcs[line[name]], line) for line in told[part]]
        if "inputs" in told:
            found["inputs"] = {
                source: {side: [shown(arcs[source], row) for row in rows] for side, rows in sides}
                for source, both in told["inputs"].items()
                for sides in [both.items()]
            }
        return found

    # ---------------------------------------------------------------- dead letters

    def letters(self, wishes: Mapping[str, str], *, limit: int) -> Data:
        """Return the newest dead letters that match, and how many there are by reason.

        Args:
            wishes: ``reason``, ``topic``, and ``text`` that the detail, key or value contains;
                ``all=yes``: acknowledged ones, too.
            limit: At most so many, the newest first.
        """
        done, every = self._acknowledged(), self._with_offsets()
        listed = [x for offset, x in every if wishes.get("all") == "yes" or offset not in done]
        found = [letter for letter in listed if _matches(letter, wishes)]
        return {
            "count": len(listed),
            "acknowledged": sum(offset in done for offset, _ in every),
            "matching": len(found),
            "reasons": dict(Counter(letter.reason for letter in listed).most_common()),
            "letters": [_short(letter) for letter in reversed(found[-limit:] if limit else [])],
        }

    def acknowledge(self, wishes: Mapping[str, str]) -> Data:
        """Acknowledge the dead letters that match: see `letters`.

        Raises:
            ManyGapsError: If too many open ones would lie between them.
        """
        every, done = self._with_offsets(), self._acknowledged()
        chosen = [offset for offset, letter in every if _matches(letter, wishes)]
        now = done.and_these(chosen, known=[offset for offset, _ in every])
        with self._lock:
            dead_letters.acknowledge(self.deployment.cluster, self.deployment.plan.network, now)
        return {"acknowledged": len(chosen), "open": sum(o not in now for o, _ in every)}

    def letter(self, place: str) -> Data:
        """Return one dead letter in full: as bytes, as text and decoded.

        Raises:
            PlaceError: If the text names no place.
            UnknownNameError: If there is none.
        """
        letter = dead_letters.letter_at(self._letters(), place)
        plain = _short(letter) | dead_letters.as_plain(letter)
        with self._lock:
            decoder = PlainDecoder(self.deployment.registry)
            plain["key_decoded"], plain["value_decoded"] = decoder.decode(
                [letter.key, letter.value]
            )
        for side, content in (("key", letter.key), ("value", letter.value)):
            plain[f"{side}_bytes"] = None if content is None else _base64(content)
        return plain

    def resend(self, places: Sequence[str], edited: Mapping[str, Any]) -> list[Data]:
        """Send the records of dead letters again; returns their places and new offsets.

        Args:
            places: Places of dead letters.
            edited: Of a single one: ``key_base64`` and ``value_base64`` to send in place of its
                bytes; None for none.

        Raises:
            PlaceError: If a text names no place.
            UnknownNameError: If there is no such dead letter.
            NoRecordError: If one is a tuple that a box refused.
            RequestError: If the edited bytes are malformed.
        """
        chosen = dead_letters.chosen(
            self.deployment, self._letters(), every=False, reasons=[], places=list(places)
        )
        if edited:
            if len(chosen) != 1:
                raise RequestError(f"one dead letter can be edited, found {len(chosen)}")
            chosen = [_edited(chosen[0], edited)]
        with self._lock:
            sent = dead_letters.send_again(self.deployment.cluster, chosen)
        return [{"place": str(letter.place), "sent_as": offset} for letter, offset in sent]

    def _letters(self) -> list[DeadLetter]:
        return [letter for _, letter in self._with_offsets()]

    def _with_offsets(self) -> list[tuple[int, DeadLetter]]:
        cluster, plan = self.deployment.cluster, self.deployment.plan
        with self._lock:
            return list(dead_letters.committed_from(cluster, plan, 0))

    def _acknowledged(self) -> dead_letters.Acknowledged:
        cluster, network = self.deployment.cluster, self.deployment.plan.network
        with self._lock:
            return dead_letters.acknowledged(cluster, network)

    def close(self) -> None:
        """Close the connection."""
        self.deployment.cluster.close()


def shown(arc: Arc, row: Mapping[str, Any]) -> dict[str, str | None]:
    """Return a tuple with texts that can be shown as they are; long ones are cut."""
    return shown_texts(arc.fields, row, longest=LONGEST_TEXT)


def key_of(arc: Arc, row: Mapping[str, Any]) -> list[str] | None:
    """Return the identity of a tuple as requests give it; None if it is too long for an address."""
    texts = identity_texts(arc, row)
    return texts if sum(map(len, texts)) <= LONGEST_KEY else None


def sides_shown(arc: Arc, line: Data) -> Data:
    """Return a revision with the tuples before and after as texts, and their ``key``."""
    sides = {side: line[side] for side in ("before", "after") if line.get(side) is not None}
    texts = {side: shown(arc, row) for side, row in sides.items()}
    return line | texts | {"key": key_of(arc, next(reversed(sides.values())))}


def _matches(letter: DeadLetter, wishes: Mapping[str, str]) -> bool:
    return (
        wishes.get("reason", letter.reason) == letter.reason
        and wishes.get("topic", letter.topic) == letter.topic
        and dead_letters.contains(letter, wishes.get("text", ""))
        and wishes.get("place", str(letter.place)) == str(letter.place)
    )


_SHOWN = 300
"""Bytes of a key or value in a list."""


def _short(letter: DeadLetter) -> Data:
    """Return a dead letter as a row of a list."""
    return {
        "place": str(letter.place),
        "reason": letter.reason,
        "detail": letter.detail[:1000],
        "task": letter.task,
        "epoch": letter.epoch,
        "written_ms": letter.time_ms,
        "is_of_box": letter.is_of_box,
        "key": _text(letter.key),
        "value": _text(letter.value),
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else content[:_SHOWN].decode(errors="backslashreplace")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _edited(letter: DeadLetter, given: Mapping[str, Any]) -> DeadLetter:
    """Return a dead letter with other bytes."""
    for side in ("key", "value"):
        if (text := given.get(f"{side}_base64", ...)) is ...:
            continue
        try:
            content = None if text is None else base64.b64decode(str(text), validate=True)
        except (binascii.Error, ValueError) as error:
            raise RequestError(f"{side}_base64 is not base64: {error}") from error
        letter = replace(letter, key=content) if side == "key" else replace(letter, value=content)
    return letter
