"""Draws a folder of the project as rooms and imports: ``python -m bench.house processors``.

A room is a sub-folder, or a file in the folder itself. A room is one floor above the highest room
that it imports. The command prints the counts; ``--svg FILE`` draws the picture.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("errata", "topics", "schemas", "processors", "sweepers", "spark_jobs")
WIDTH, ROOM_WIDTH, ROOM_HEIGHT, GAP, FLOOR = 1100, 128, 34, 10, 74


@dataclass(frozen=True)
class House:
    """The rooms of a folder, and their imports of one another.

    Args:
        root: The checkout.
        folder: Name of the folder.
    """

    root: Path
    folder: str

    @cached_property
    def files(self) -> list[Path]:
        """Return the Python files of the folder, without following links."""
        found = sorted((self.root / self.folder).rglob("*.py"))
        inside = [path.relative_to(self.root) for path in found]
        links = [p for p in (self.root / self.folder).iterdir() if p.is_symlink()]
        return [
            p for p in inside if not any((self.root / p).is_relative_to(link) for link in links)
        ]

    @cached_property
    def rooms(self) -> dict[str, list[Path]]:
        """Return the files by room; the `__init__.py` that only re-exports belongs to none."""
        rooms: dict[str, list[Path]] = defaultdict(list)
        for path in self.files:
            inner = path.relative_to(self.folder)
            if inner != Path("__init__.py"):
                rooms[inner.parts[0].removesuffix(".py")].append(path)
        return dict(rooms)

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """Return the rooms that each room imports."""
        home = {path: room for room, paths in self.rooms.items() for path in paths}
        arrows: dict[str, set[str]] = {room: set() for room in self.rooms}
        for path, room in home.items():
            for target in self._imported(path):
                if home.get(target, room) != room:
                    arrows[room].add(home[target])
        return arrows

    def _imported(self, path: Path) -> Iterator[Path]:
        for node in ast.walk(ast.parse((self.root / path).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in node.names:
                    yield from self._files_of(f"{node.module}.{name.name}", node.module)
            elif isinstance(node, ast.Import):
                for name in node.names:
                    yield from self._files_of(name.name)

    def _files_of(self, *modules: str) -> Iterator[Path]:
        for module in modules:
            parts = module.split(".")
            if len(parts) > 1 and parts[0] == "errata" and parts[1] in FOLDERS:
                parts = parts[1:]
            path = Path(*parts).with_suffix(".py")
            if (self.root / path).is_file():
                yield path
                return

    @cached_property
    def circles(self) -> list[set[str]]:
        """Return the sets of rooms that import one another, directly or indirectly."""
        reach = {room: self._reach(room) for room in self.rooms}
        found: list[set[str]] = []
        for room in self.rooms:
            circle = {other for other in reach[room] if room in reach[other]}
            if circle and circle not in found:
                found.append(circle)
        return found

    def _reach(self, room: str) -> set[str]:
        seen: set[str] = set()
        todo = [room]
        while todo:
            for other in self.arrows[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        return seen

    @cached_property
    def floors(self) -> dict[str, int]:
        """Return the floor of each room, from 1; the rooms of a cycle share one."""
        together = {room: circle for circle in self.circles for room in circle}
        floors: dict[str, int] = {}

        def floor(room: str) -> int:
            if room not in floors:
                own = together.get(room, {room})
                below = {other for each in own for other in self.arrows[each]} - own
                height = 1 + max(map(floor, sorted(below)), default=0)
                floors.update(dict.fromkeys(own, height))
            return floors[room]

        for room in self.rooms:
            floor(room)
        return floors

    def lines(self, room: str) -> int:
        """Return how many lines a room has."""
        return sum(len((self.root / path).read_text().splitlines()) for path in self.rooms[room])

    def counts(self) -> dict[str, int]:
        """Return the counts of the house."""
        return {
            "files": len(self.files),
            "rooms": len(self.rooms),
            "floors": max(self.floors.values(), default=0),
            "arrows": sum(map(len, self.arrows.values())),
            "circles": len(self.circles),
            "lines": sum(map(self.lines, self.rooms)),
        }


def draw(house: House) -> str:
    """Return the house as SVG, the top floor first."""
    by_floor: dict[int, list[str]] = defaultdict(list)
    for room, floor in sorted(house.floors.items()):
        by_floor[floor].append(room)
    a_row = WIDTH // (ROOM_WIDTH + GAP)
    places: dict[str, tuple[int, int]] = {}
    top = GAP
    for floor in sorted(by_floor, reverse=True):
        rows = [by_floor[floor][n : n + a_row] for n in range(0, len(by_floor[floor]), a_row)]
        for row in rows:
            left = (WIDTH - len(row) * (ROOM_WIDTH + GAP)) // 2
            for number, room in enumerate(row):
                places[room] = left + number * (ROOM_WIDTH + GAP), top
            top += ROOM_HEIGHT + GAP
        top += FLOOR - ROOM_HEIGHT - GAP
    middle = ROOM_WIDTH // 2
    arrows = [
        f'<line x1="{places[a][0] + middle}" y1="{places[a][1] + ROOM_HEIGHT}" '
        f'x2="{places[b][0] + middle}" y2="{places[b][1]}"/>'
        for a, below in sorted(house.arrows.items())
        for b in sorted(below)
    ]
    rooms = [
        f'<rect x="{x}" y="{y}" width="{ROOM_WIDTH}" height="{ROOM_HEIGHT}" rx="4"/>'
        f'<text x="{x + middle}" y="{y + 15}">{escape(room)}</text>'
        f'<text x="{x + middle}" y="{y + 28}" class="small">{house.lines(room):,} lines</text>'
        for room, (x, y) in places.items()
    ]
    style = (
        "line{stroke:#7a8ca3;stroke-width:1;opacity:.45}rect{fill:#eef3f8;stroke:#4a6078}"
        "text{font:12px sans-serif;text-anchor:middle;fill:#1c2733}.small{font-size:10px}"
    )
    body = "\n".join([*arrows, *rooms])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}">\n'
        f"<style>{style}</style>\n{body}\n</svg>\n"
    )


def main() -> None:
    """Count and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="as processors, or errata")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    parser.add_argument("--svg", type=Path, help="file to write the picture to")
    options = parser.parse_args()
    house = House(options.root, options.folder)
    print(", ".join(f"{count:,} {what}" for what, count in house.counts().items()))
    if options.svg is not None:
        options.svg.write_text(draw(house))


if __name__ == "__main__":
    main()
