"""Draws a series of results with what was corrected in it: what was emitted first, and what is now.

Superseded values are hollow and faint, present ones solid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from errata.client.reading import UnknownFieldError, network_of, opened, require_fields
from errata.client.rows import revisions as as_lines
from errata.client.told import ArcHistory
from errata.observe.network_progress import current
from errata.processors.boxes.states import START
from errata.processors.declare.network import Stream
from errata.render.figures import number
from errata.render.picture import picture
from errata.schemas.arc import Arc, visible
from errata.topics.client import Settings

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 320, 90, 20, 34, 40
NOW, BEFORE, GRID = "#0b5cad", "#9aa3ad", "#ddd"
_TICKS = 5
_NUMBERS = {"int", "long", "float", "double", "decimal"}


class Point(NamedTuple):
    """A result: its time in ms, and its values; None where there was none, or is none now."""

    at_ms: int
    first: float | None
    now: float | None

    @property
    def is_corrected(self) -> bool:
        """Whether another value was emitted first."""
        return self.first is not None and self.first != self.now


@dataclass(frozen=True)
class History:
    """A series of results with its corrections; a notebook shows it as a picture.

    Args:
        arc: Its arc.
        value: The field that is drawn.
        points: The results by event time.
    """

    arc: str
    value: str
    points: Sequence[Point]

    @property
    def corrected(self) -> list[Point]:
        """The results of which another value was emitted first."""
        return [point for point in self.points if point.is_corrected]

    def save(self, file: str | Path) -> None:
        """Write the picture as SVG."""
        Path(file).write_text(self._repr_svg_(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return drawn(self)


def plot(
    arc: Stream,
    value: str,
    *,
    where: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
) -> History:
    """Draw a field of an arc's results over event time, with the values that were corrected.

    Args:
        arc: The arc; it needs a topic.
        value: A field with numbers.
        where: Only results with these values of some fields; mostly those of one group.
        settings: As in `errata.read`.

    Raises:
        UnknownFieldError: If there is no such field, or it has no numbers.
        NotDeployedError: If the network doesn't run there.
    """
    with opened(network_of(arc), settings) as deployment:
        name = deployment.require_topic(arc.name)
        kind = deployment.plan.topology.arcs[name]
        _require_number(kind, value)
        require_fields(kind, where or {})
        progress = current(deployment.cluster, deployment.plan)
        try:
            found = visible(kind, ArcHistory(deployment, progress)(name, None))
        finally:
            progress.close()
    return History(name, value, points_of(kind, as_lines(kind, found), value, where or {}))


def _require_number(arc: Arc, value: str) -> None:
    require_fields(arc, [value])
    if arc.fields[value].kind not in _NUMBERS:
        numbers = [name for name in arc.visible if arc.fields[name].kind in _NUMBERS]
        raise UnknownFieldError(
            f"field {value!r} of arc {arc.name!r} is {arc.fields[value]}, and can't be drawn; "
            f"numbers are: {', '.join(numbers) or 'none'}"
        )


def points_of(
    arc: Arc, lines: Sequence[Mapping[str, Any]], value: str, where: Mapping[str, Any]
) -> list[Point]:
    """Return the first and the present value of each result, by event time.

    Args:
        arc: The arc.
        lines: Its revisions, in order, as `errata.client.rows.revisions` gives them.
        value: A field with numbers.
        where: Only results with these values.
    """
    at = START if START in arc.visible else arc.event_time
    found: dict[tuple[Any, ...], Point] = {}
    for line in lines:
        before, after = line.get("before"), line.get("after")
        side = after or before or {}
        if any(side[name] != wanted for name, wanted in where.items()):
            continue
        key = tuple(side[name] for name in arc.identity if name in side)
        if key not in found:
            emitted = before or after or {}
            found[key] = Point(int(side.get(at, 0)), _float(emitted[value]), None)
        found[key] = found[key]._replace(now=None if after is None else _float(after[value]))
    return sorted(found.values())


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def drawn(history: History) -> str:
    """Return a history as SVG."""
    points = history.points
    values = [v for point in points for v in (point.first, point.now) if v is not None]
    title = f"{history.value} of {history.arc}: {len(points)} results, "
    title += f"{len(history.corrected)} corrected (hollow: as emitted first)"
    parts = [f'<text x="{LEFT}" y="18">{escape(title)}</text>']
    if not values:
        return picture(WIDTH, HEIGHT, parts)
    first_ms, last_ms = points[0].at_ms, points[-1].at_ms
    low, high = min(0.0, *values), max(0.0, *values)
    high = high if high > low else low + 1

    def across(at_ms: int) -> float:
        return LEFT + (at_ms - first_ms) / ((last_ms - first_ms) or 1) * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    for step in range(_TICKS):
        level = low + (high - low) * step / (_TICKS - 1)
        y, at_ms = up(level), first_ms + (last_ms - first_ms) * step // (_TICKS - 1)
        parts += [
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>',
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(level)}</text>',
            f'<text x="{across(at_ms):.1f}" y="{HEIGHT - 14}" text-anchor="middle">'
            f"{_time(at_ms, last_ms - first_ms)}</text>",
        ]
    line = " ".join(f"{across(p.at_ms):.1f},{up(p.now):.1f}" for p in points if p.now is not None)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{NOW}" stroke-width="1.5"/>')
    for point in points:
        x = across(point.at_ms)
        if point.first is not None and point.is_corrected:
            place = f'cx="{x:.1f}" cy="{up(point.first):.1f}"'
            parts.append(f'<circle {place} r="4" fill="white" stroke="{BEFORE}"/>')
        if point.now is not None:
            parts.append(f'<circle cx="{x:.1f}" cy="{up(point.now):.1f}" r="2.5" fill="{NOW}"/>')
    return picture(WIDTH, HEIGHT, parts)


def _time(at_ms: int, span_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y-%m-%d}" if span_ms > 3 * 86_400_000 else f"{at:%d %b %H:%M}"
