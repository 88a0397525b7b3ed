"""Random networks of functions that raise for some tuples, and the dead letters that they need.

scaled -> liked (where)? -> shared (map)? -> big, small (route) -> both (union)? -> aggregates, over
windows of time and sometimes of rows; sometimes also scaled -> picky (where) -> split (map) -> an
aggregate, all in one job on Spark
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from errata import Stream, hopping, python, sliding, tumbling
from tests.laws import oracle
from tests.laws.networks import KEEP, Shape, front, shape_of
from tests.laws.oracle import Tuple, count
from tests.laws.random_times import Drawn, Times
from tests.laws.user_functions import Fussy, likes, shared
from tests.plans import with_topology

MODES = ("upstream", "downstream", "resident", "adaptive")
ALL = ".all"
"""Suffix of an aggregate's name: its results as if none of them were refused."""
FUSSY = {"n": "count(*)", "fussy": Fussy("size")}
FUSSY_ORACLE: Mapping[str, Callable[[list[Tuple]], int]] = {
    "n": count(),
    "fussy": lambda ts: sum(t["size"] or 0 for t in ts),
}


@dataclass(frozen=True)
class FailingShape(Shape):
    """A network with functions that raise.

    Args:
        fails: For each box, whether it refuses a tuple of its input.
        untold: Aggregates that refuse some results.
        exact: Those of them that refuse a result only when it is new or changed; the others may
            refuse it again when its window is touched.
    """

    fails: Mapping[str, Callable[[Tuple], bool]] = field(default_factory=dict)
    untold: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()


def _raises(t: Tuple, function: Callable[..., Any]) -> bool:
    try:
        return isinstance(function(t["size"], t["product"]), str)
    except (LookupError, ZeroDivisionError):
        return True


def dislikes(t: Tuple) -> bool:
    return _raises(t, likes)


def cannot_share(t: Tuple) -> bool:
    return _raises(t, shared)


def is_seven(t: Tuple) -> bool:
    return t["size"] == 7


def is_told(t: Tuple) -> bool:
    return t["fussy"] % 3 != 1


def is_liked(t: Tuple) -> bool:
    return not dislikes(t) and likes(t["size"], t["product"])


class Failing:
    """Declares a network, and the oracle's boxes for it."""

    def __init__(self, seed: int, *, spark: bool) -> None:
        self.dice = random.Random(f"failing {seed}")
        self.boxes: list[oracle.Box] = []
        self.fails: dict[str, Callable[[Tuple], bool]] = {}
        self.untold: list[str] = []
        self.net, flow = front(kept=self.chance(0.5) or spark)
        if spark:
            self._job(flow, random.Random(f"spark {seed}"))
        for stage in (self._liked, self._shared, self._routed):
            flow = stage(flow) if self.chance(0.7) else flow
        self.boxes.append(oracle.Where("taken", flow.name, lambda t: not is_seven(t)))
        self._aggregates(flow)
        self.counting = self._counting(flow) if self.chance(0.6) else []

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def _where(self) -> dict[str, Any]:
        return {
            "scope": self.dice.choice([None, "front"]),
            "keep": KEEP if self.chance(0.3) else None,
        }

    def _liked(self, flow: Stream) -> Stream:
        self.fails["liked"] = dislikes
        self.boxes.append(oracle.Where("liked", flow.name, is_liked))
        return flow.where("liked", python(likes, "boolean", "size", "product"), **self._where())

    def _shared(self, flow: Stream) -> Stream:
        self.fails["shared"] = cannot_share
        own = oracle.Where("shared.all", flow.name, lambda t: not cannot_share(t))
        made = {"share": lambda t: shared(t["size"], t["product"])}
        self.boxes += [own, oracle.Map("shared", own.name, made)]
        how = python(shared, "long?", "size", "product")
        return flow.map("shared", fields={"share": how}, **self._where())

    def _routed(self, flow: Stream) -> Stream:
        """The first output rejects small tuples, unless its function raises for them."""
        self.fails["big"] = dislikes
        is_small = "size is not null"
        big, small = flow.route(big=python(likes, "boolean", "size", "product"), small=is_small)
        self.boxes += [
            oracle.Where("big", flow.name, is_liked),
            oracle.Where(
                "small",
                flow.name,
                lambda t: t["size"] is not None and not dislikes(t) and not is_liked(t),
            ),
            oracle.Union("both", ("big", "small")),
        ]
        return self.net.union("both", big, small, keep=KEEP if self.chance(0.3) else None)

    def _aggregates(self, flow: Stream) -> None:
        dice, drawn = self.dice, Times().window(self.dice)
        by = dice.choice([["product"], ["product"], ["desk"], ["product", "desk"]])
        emit = dice.choice(["on_close", "on_close", "on_update"])
        names = []
        partitions = dice.choice([None, None, 3]) if by == ["desk"] else None
        for mode in dice.sample(MODES, dice.choice([2, 3])):
            keep = KEEP if mode == "downstream" or self.chance(0.3) else None
            names.append(mode[:2])
            flow.aggregate(
                mode[:2],
                by=by,
                window=drawn.declared,
                mode=mode,
                emit=emit,
                keep=keep,
                partitions=partitions,
                fields=FUSSY,
            )
            self._tells_windows(mode[:2], "taken", by, drawn, emit)
        self.agree = [(names[0], other) for other in names[1:]]
        if drawn.declared is not None and self.chance(0.4):
            over = self.dice.choice(names)
            size = 24
            above = Stream(self.net, over)
            above.aggregate("over", by=by[:1], window=tumbling(size), fields={"all": "sum(fussy)"})
            total = oracle.total("fussy")
            self.boxes.append(
                oracle.Aggregate(
                    "over", over, tuple(by[:1]), size, size, {"all": total}, time=oracle.closed_at
                )
            )

    def _job(self, flow: Stream, rim: random.Random) -> None:
        """Filter, map and aggregate in one job on Spark."""
        self.fails |= {"picky": dislikes, "split": cannot_share}
        known = oracle.Where("split.all", "picky", lambda t: not cannot_share(t))
        made = {"share": lambda t: shared(t["size"], t["product"])}
        self.boxes += [
            oracle.Where("picky", flow.name, is_liked),
            known,
            oracle.Map("split", known.name, made),
            oracle.Where("job.taken", "split", lambda t: not is_seven(t)),
        ]
        flow = flow.where("picky", python(likes, "boolean", "size", "product"))
        flow = flow.map("split", fields={"share": python(shared, "long?", "size", "product")})
        times = Times()
        drawn = times.window(rim)
        by, emit = rim.choice([["product"], ["desk"]]), rim.choice(["on_close", "on_update"])
        flow.aggregate(
            "job",
            by=by,
            window=drawn.declared,
            emit=emit,
            place="spark",
            horizon=rim.choice([None, None, 0, 3 * times.unit]),
            keep=KEEP,
            fields=FUSSY,
        )
        self._tells_windows("job", "job.taken", by, drawn, emit)

    def _counting(self, flow: Stream) -> list[str]:
        """Add windows that count the accepted tuples."""
        dice, names = self.dice, ["rows", "all_rows"]
        by = dice.choice([["product"], ["desk"]])
        size, every = dice.choice([(2, 2), (3, 1), (2, None), (4, None)])
        on_update = self.chance(0.4)
        for name, mode in zip(names, ("adaptive", "resident"), strict=True):
            flow.aggregate(
                name,
                by=by,
                window=sliding(rows=size) if every is None else hopping(rows=size, every=every),
                mode=mode,
                emit="on_update" if on_update else "on_close",
                keep=KEEP if self.chance(0.3) else None,
                fields=FUSSY,
            )
            windows = oracle.Counting(
                name=name + ALL,
                input="taken",
                by=tuple(by),
                identity=("key",),
                time="at",
                rows=size,
                every=every,
                results=FUSSY_ORACLE,
                on_update=on_update,
            )
            self._tells(name, windows)
        self.agree.append((names[0], names[1]))
        return names

    def _tells_windows(self, name: str, taken: str, by: list[str], drawn: Drawn, emit: str) -> None:
        every = oracle.Aggregate(
            name + ALL,
            taken,
            tuple(by),
            0,
            0,
            FUSSY_ORACLE,
            windows=drawn.known,
            on_update=emit == "on_update",
            is_whole=drawn.declared is None,
        )
        self._tells(name, every)

    def _tells(self, name: str, every: oracle.Box) -> None:
        """Declare an aggregate to the oracle, with only those results that it does not refuse."""
        self.boxes += [every, oracle.Where(name, every.name, is_told)]
        self.fails[name] = is_seven
        self.untold.append(name)


def failing_shape(seed: int, *, spark: bool = False) -> FailingShape:
    """Return the network of a seed, with a job on Spark or without."""
    made = Failing(seed, spark=spark)
    shape = shape_of(made.net, tuple(made.boxes), *made.agree, every_arc=True)
    if spark:  # the arcs inside the job are not written
        plan, job = shape.plan, replace(shape.plan.topology.scopes["job"], outputs=("job",))
        topics = tuple(arc for arc in plan.topology.topics if arc not in job.boxes[:-1])
        shape = replace(
            shape,
            plan=with_topology(plan, scopes={**plan.topology.scopes, "job": job}, topics=topics),
        )
    return FailingShape(
        **vars(shape), fails=made.fails, untold=tuple(made.untold), exact=tuple(made.counting)
    )
