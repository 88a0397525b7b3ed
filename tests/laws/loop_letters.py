"""The dead letters of loops: one for each tuple that is left out, in the epoch that does so."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from tests.laws.history import History
from tests.laws.loops import Iterate
from tests.laws.oracle import Content, Tuple

Report = dict[str, Any]
REASONS = {
    "refused by box": r"box '(\w+)', epoch (\d+): still changes after \d+ rounds of ()loop '\1'",
    "function raised": r"box '(\w+)', epoch (\d+): in box '(\w+)' of the loop: function ",
}
What = tuple[str, int, str, tuple[Any, ...]]
"""A loop, an epoch, the box within it if that raised, and the identity of the tuple."""


class LoopLetters:
    """Records what loops leave out, epoch by epoch, and compares it with the dead letters.

    Args:
        boxes: The boxes of a network, including its loops.
        history: Decodes the content of dead letters.
        found: Gets the violations, by law.
    """

    def __init__(self, boxes: Iterable[Any], history: History, found: dict[str, list[str]]) -> None:
        self.loops = [box for box in boxes if isinstance(box, Iterate)]
        self.history, self.found = history, found
        self.due: dict[What, Tuple] = {}
        self._last: dict[str, dict[Any, Tuple]] = defaultdict(dict)

    def saw(self, epoch: int, contents: Mapping[str, Content]) -> None:
        """Record the tuples that were not left out in the epoch before, or with other values."""
        for loop in self.loops:
            now, before = loop.left_out(contents), self._last[loop.name]
            for (box, identity), t in now.items():
                if before.get((box, identity)) != t:
                    self.due[loop.name, epoch, box, identity] = t
            self._last[loop.name] = now

    def check(self, letters: Iterable[Report], seen: Counter[str]) -> None:
        """Record what is wrong with the dead letters of boxes, and count them."""
        told = Counter[What]()
        for letter in letters:
            if letter["offset"] >= 0:
                continue
            named = re.match(REASONS[letter["reason"]], letter["detail"])
            if named is None or int(named[2]) != letter["epoch"]:
                self._wrong(f"this says not what, where and when: {letter}")
                continue
            key, value = (self.history.decode(letter[side]) or {} for side in ("key", "value"))
            what = named[1], letter["epoch"], named[3], tuple(key.values())
            told[what] += 1
            seen[f"left out by a loop: {letter['reason']}"] += 1
            wanted = self.due.get(what, {})
            if any(value["after"][name] != v for name, v in wanted.items()):
                self._wrong(f"the letter of {what} has {value}, should have {wanted}")
        for what, number in told.items():
            if what not in self.due or number > 1:
                self._wrong(f"{number} letters of {what}")
        for what in self.due.keys() - told.keys():
            self._wrong(f"no letter of {what}")

    def _wrong(self, what: str) -> None:
        self.found["L6"].append(what)
