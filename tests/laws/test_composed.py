"""The laws on a network that is bound to arcs of another one, whatever dies in either.

``ERRATA_LAWS_EXAMPLES=300`` runs 300 pairs of networks instead of a few.
"""

import os
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from errata import Network
from errata.processors.tasks import lost_records
from tests.laws.at_rest import content, differing, sent
from tests.laws.audit import Audit
from tests.laws.composing import Composed, ComposedAudit, Upper, divided, halves
from tests.laws.oracle import FOREVER, contents
from tests.laws.random_networks import random_network
from tests.laws.replies import small_replies
from tests.laws.seeds import seeds
from tests.laws.test_lost_records import MODES, SHAPES, Losing, alone
from tests.laws.test_put_back import Poisoned, PutBackAudit, believing

TICKS = 14


def judge(seed: int, **boxes: bool) -> None:
    """Run the networks of a seed, and check that neither breaks a law."""
    upper, lower = divided(random_network(seed, **boxes), seed)
    with tempfile.TemporaryDirectory() as folder, small_replies(seed):
        simulation = Composed(upper, lower, seed=seed, folder=Path(folder), ticks=TICKS)
        try:
            simulation.run()
            above = Audit(simulation.upper)
            found = {"upper": above.found, "lower": ComposedAudit(simulation, above).found}
        except Exception as error:
            told = f"Progress: a process died of itself: {error}\n{lower.told}"
            raise AssertionError(told) from error
        finally:
            simulation.close()
    few = {
        f"{n} {law}": [len(what), *what[:3]]
        for n, own in found.items()
        for law, what in own.items()
    }
    assert not few, f"{few}\n{upper.told}\n{lower.told}"


@pytest.mark.parametrize("seed", seeds(4, 8))
def test_laws_hold_in_a_network_bound_to_another(seed):
    judge(seed)


@pytest.mark.parametrize("seed", seeds(3, 6, share=0.5))
def test_laws_hold_in_a_bound_network_with_joins(seed):
    judge(seed, joins=True)


class LosingUpper(Losing, Upper):
    """Brokers lose records of the upper network."""


SEEN: Counter[str] = Counter()


@pytest.mark.parametrize("seed", range(int(os.environ.get("ERRATA_LAWS_EXAMPLES", 6))))
def test_what_brokers_lose_upstream_is_corrected_downstream(seed):
    net = Network("tape")
    upper, lower = halves(SHAPES[seed // 2 % 2](MODES[seed % len(MODES)], net), net)
    often = mock.patch.multiple(
        lost_records, CHECKED_S=0 if seed % 2 else 1e9, FRESH_S=-1, YOUNGEST_MS=2**60
    )
    with tempfile.TemporaryDirectory() as folder, often:
        both = Composed(upper, lower, seed=seed, folder=Path(folder), ticks=16, kind=LosingUpper)
        try:
            with mock.patch.object(lost_records, "monotonic", both.now_s):
                both.run()
            SEEN.update(both.upper.seen)
            assert not both.seen["never quiet"], "Progress"
            sources = {name: content(both.upper, name) for name in both.plan.topology.sources}
            for name, should in sources.items():
                assert not differing(sent(both.upper, name), should), f"L1: {name}"
            wanted = contents(lower.boxes, sources, FOREVER)
            for arc in both.plan.topology.topics:
                if not both.plan.topology.arcs[arc].exchange:
                    assert not differing(content(both, arc), wanted[arc]), f"L1: {arc}"
        finally:
            both.close()


def test_records_were_lost_upstream():
    assert SEEN["losses"] > 5, SEEN


class PoisonedUpper(Poisoned, Upper):
    """A watermark of the upper network runs ahead, and is put back."""

    restored: int | None = None

    def at(self, tick: int) -> None:
        """Let the records of a tick arrive, among them those that are dated far ahead."""
        super().at(tick)
        source, partitions = next(iter(self.tapes)), [0]
        if tick == self.ticks // 3:
            self._poison(source, 0, self.tapes[source])
        if tick > self.ticks // 3 + 2 and self.restored is None:
            self.restored = self._restore(source, partitions)


class PoisonedAudit(ComposedAudit, PutBackAudit):
    """Tasks that are rebuilt leave epochs out."""


@pytest.mark.parametrize("seed", range(int(os.environ.get("ERRATA_LAWS_EXAMPLES", 6))))
def test_a_watermark_that_is_put_back_upstream_is_put_back_downstream(seed):
    net = Network("tape")
    upper, lower = halves(believing(alone(MODES[seed % len(MODES)], net)), net)
    with tempfile.TemporaryDirectory() as folder:
        both = Composed(
            believing(upper), lower, seed=seed, folder=Path(folder), ticks=24, kind=PoisonedUpper
        )
        try:
            both.run()
            above = PutBackAudit(both.upper)
            below = PoisonedAudit(both, above)
            SEEN.update(both.upper.seen)
            SEEN["lowered below"] += bool(below.lowered)
        finally:
            both.close()
    assert {**above.found, **below.found} == {}


def test_watermarks_were_put_back():
    assert SEEN["lowered below"] > 1, SEEN
