"""A random network of all boxes, windows, emissions, types and functions, and its oracle.

one source, or two in a union -> up to three stateless boxes -> an aggregate in two or three modes
-> sometimes a second one over its results.
"""

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

from errata import Network, Stream, hopping, sliding
from errata.processors.compile.compiler import compile_network
from tests.laws import oracle, windows
from tests.laws.envelopes import ENVELOPES
from tests.laws.networks import IDLE_AFTER_MS, PARTITIONS, SOURCE, Shape
from tests.laws.oracle import Aggregate, Tuple
from tests.laws.placing import place
from tests.laws.printing import tell
from tests.laws.random_boxes import FIELDS, Flow, kind
from tests.laws.random_loops import Looping, has_links
from tests.laws.random_results import Rows, draw_predicate, draw_results
from tests.laws.random_times import Times, draw_times
from tests.laws.significant import keep_back
from tests.laws.tape import Tape

MODES = ("upstream", "downstream", "resident", "adaptive")


@dataclass(frozen=True)
class RandomShape(Shape):
    """A random network.

    Args:
        told: Its declarations, to reproduce it by hand.
    """

    told: str = ""


def random_shape(seed: int, **boxes: bool) -> RandomShape:
    """Return the shape of the network of a seed; the same for each call.

    Args:
        seed: The seed.
        boxes: As of `random_network`; and ``significance``: whether some keep revisions back;
            ``placed``: whether boxes of any kind are on Spark.

    Raises:
        AssertionError: If it is refused; no network of this module should be.
    """
    significance, placed = boxes.pop("significance", False), boxes.pop("placed", False)
    made = random_network(seed, **boxes)
    keep = made.times.keep
    if significance:
        made.boxes = keep_back(made.net, made.boxes, made.agree, keep=keep, seed=seed)
    if placed:
        place(made.net, rim=random.Random(f"places {seed}"), keep=keep)
    return shape_of(made, made.net)


def random_network(
    seed: int,
    *,
    spark: bool = False,
    joins: bool = False,
    rows: bool = False,
    loops: bool = False,
) -> "RandomNetwork":
    """Return the network of a seed; the same for each call.

    Args:
        seed: The seed.
        spark: Whether some aggregates are on Spark.
        joins: Whether it has joins.
        rows: Whether it has lags, windows that count, and distinct boxes.
        loops: Whether it has joins, lookups and loops.
    """
    dice = random.Random(f"network {seed}")
    rim = random.Random(f"rim {seed}")
    made = RandomNetwork(
        dice,
        draw_times(dice),
        rim=rim,
        spark=spark,
        joins=joins or loops,
        rows=rows,
        loops=loops,
    )
    made.declare()
    made.sink()
    return made


def shape_of(made: "RandomNetwork", net: Network) -> RandomShape:
    """Return the shape of a random network, as it is or with other sources.

    Raises:
        AssertionError: If it is refused.
    """
    told = tell(net)
    try:
        plan = compile_network(net, every_arc=made.chance(0.5))
        plan = plan.placed(dict.fromkeys(plan.topology.sources, PARTITIONS))
    except Exception as error:
        raise AssertionError(f"refused: {error}\n{told}") from error
    times = made.times
    scattered = any(source.rekey for source in plan.topology.sources.values())
    return RandomShape(
        plan,
        tuple(made.boxes),
        tuple(pair for pair in made.agree if set(pair) <= set(plan.topology.topics)),
        keep=times.keep,
        lateness=times.lateness,
        tape=partial(Tape, base=times.base, unit=times.unit, wide=True, scattered=scattered),
        told=told,
    )


class RandomNetwork(Looping):
    """Declares a whole network; `agree` has the pairs of arcs that must have the same revisions.

    Args:
        rim: The random generator for envelopes, sinks and Spark.
        spark: Whether some aggregates are on Spark.
        joins: Whether it has joins.
        rows: Whether it has lags, windows that count, and distinct boxes.
        loops: Whether it also has lookups and loops.
    """

    def __init__(
        self,
        dice: random.Random,
        times: Times,
        *,
        rim: random.Random,
        spark: bool = False,
        joins: bool = False,
        rows: bool = False,
        loops: bool = False,
    ) -> None:
        super().__init__(dice, times)
        self.rim, self.spark, self.joins, self.rows = rim, spark, joins, rows
        self.loops = loops

    def declare(self) -> None:
        """Declare the network."""
        self.agree: list[tuple[str, str]] = []
        flows = [flow := self._sources()]
        for _ in range(self.dice.choice([0, 1, 1, 2, 2, 3])):
            flows.append(flow := self.stateless(flow))
        if self.loops and self.chance(0.7):
            flows.append(flow := self.loop(flow))
        if self.joins and self.chance(0.6):
            flow = self._meet(flows) or flow
        if self.rows and self.chance(0.5):
            flows.append(flow := self.lag(flow, self._groups(flow)))
            if FIELDS.keys() <= flow.kinds.keys() and self.chance(0.3):
                flows.append(flow := self.stateless(flow))
        results = self._aggregates(flow, stem="res" if self.joins else "r")
        if self.joins:
            flows += [*results, *filter(None, [self._meet([*flows, *results])])]
            results = [self.dice.choice(flows)]
        if self.rows and self.chance(0.4):
            results = [self.lag(above := self.dice.choice(results), self._groups(above))]
        if self.chance(0.5):
            self._aggregates(self.dice.choice(results), stem="sec" if self.joins else "s")
        if self.rows and self.chance(0.5):
            self._distinct([*flows, *results])

    def _distinct(self, flows: list[Flow]) -> None:
        """Add a distinct box, and a lag or an aggregate behind it."""
        above = self.dice.choice(flows)
        once = self.distinct(above, self._groups(above))
        if once is above:
            return
        if self.chance(0.4):
            self.lag(once, self._groups(once))
        if {"lots", "size", "amount"} & once.kinds.keys() and self.chance(0.7):
            self._aggregates(once, stem="of")

    def _meet(self, flows: list[Flow]) -> Flow | None:
        """Join two arcs, or one with itself or a related one; None if they can't be joined."""
        dice = self.dice
        one, other = dice.choice(flows), dice.choice(flows)
        ends = "__window_end" in (one.time, other.time)  # the oracle has no clocks for these times
        if self.loops and (self.chance(0.6) or ends):
            other = dice.choice([other, self._links(one)]) if has_links(one) else other
            return self.lookup(one, other) or self.loop(one)
        return self.join(one, other)

    def _sources(self) -> Flow:
        by = self.dice.choice([["product"], ["product"], ["desk"], ["product", "lots"], [], None])
        options = {"partition_by": by, "partitions": self.dice.choice([None, 2, 3])}
        options |= {"rekey": self.chance(0.1)}
        if self.chance(0.75):
            return self._source(SOURCE, options)
        trades, more = (self._source(name, options) for name in (SOURCE, "more"))
        return self.union(self.where(trades) if self.chance(0.4) else trades, more, tag="source")

    def _source(self, name: str, options: dict[str, Any]) -> Flow:
        stream = self.net.source(
            name,
            topic=f"{name}.swaps",
            envelope=self.rim.choice(["native", *ENVELOPES]),
            format="json",
            fields=FIELDS,
            identity=["key"],
            event_time="at",
            lateness=self.times.lateness,
            idle_after=IDLE_AFTER_MS,
            keep=self.times.keep,
            max_ahead=None,  # event times have nothing to do with the clock
            **options,
        )
        return Flow(stream, {name: kind(text) for name, text in FIELDS.items()}, ("key",))

    def sink(self) -> None:
        """Add sinks to some arcs, in half of the networks."""
        names = list(self.net.declarations)
        count = self.rim.choice([0, 0, 0, 2, 3, 4])
        for number, name in enumerate(self.rim.sample(names, min(count, len(names)))):
            stream = Stream(self.net, name)
            envelope, form = self.rim.choice(ENVELOPES), self.rim.choice(["avro", "json"])
            stream.sink(f"sunk{number}", envelope=envelope, format=form)

    # ---------------------------------------------------------------- aggregates

    def _aggregates(self, flow: Flow, *, stem: str) -> list[Flow]:
        """Declare one aggregate in several modes; return its arcs."""
        can_count = flow.time != "__window_end" and "n" not in flow.identity
        if self.rows and can_count and self.chance(0.6):
            return self._counting(flow, stem=stem)
        dice, (window, known) = self.dice, self.times.window(self.dice)
        if flow.time == "__window_end":  # the result of a whole history is at the end of time
            window, known = None, windows.whole
        groups, orders = self._groups(flow), self._orders(flow)
        results = draw_results(dice, self._rows(flow, groups, orders), stem=stem)
        options: dict[str, Any] = {
            "by": groups,
            "window": window,
            "emit": dice.choice(["on_close", "on_close", "on_update"]),
            "order_by": [f"{name} desc" if largest else name for name, largest in orders],
            "partitions": dice.choice([None, None, None, 1, 2, 3]),
            "fields": {name: drawn.text for name, drawn in results.items()},
        }
        hidden = "__" if window is None else ""
        start, end = f"{hidden}window_start", f"{hidden}window_end"
        kinds = {name: flow.kinds[name] for name in groups}
        kinds |= dict.fromkeys(() if hidden else (start, end), "timestamp")
        kinds |= {name: drawn.kind for name, drawn in results.items()}
        identity = groups if groups and hidden else (*groups, start)
        stored = not any(drawn.is_whole for drawn in results.values())
        modes = [mode for mode in MODES if mode != "downstream" or stored]
        shared, style = self.fresh("shared"), dice.choice(["own", "shared", "named"])
        found = []
        for mode in dice.sample(modes, dice.choice([2, 2, 3])):
            name = self.fresh(mode[:2])
            scope = {"own": None, "shared": shared, "named": f"of_{name}"}[style]
            keep = self.kept(0.7 if mode == "downstream" else 0.3)
            how = {"mode": mode, "scope": scope, **options}
            if self.spark and self.rim.random() < 0.6:
                horizon = self.rim.choice([None, None, 0, 3 * self.times.unit])
                how |= {"mode": "adaptive", "place": "spark", "horizon": horizon}
                how |= {"scope": None, "partitions": None}
                keep = keep if stem.startswith("s") else self.times.keep  # others may replay it
            stream = flow.stream.aggregate(name, keep=keep, **how)
            self.boxes.append(
                Aggregate(
                    name,
                    flow.name,
                    groups,
                    0,
                    0,
                    {name: drawn.means for name, drawn in results.items()},
                    time=partial(_event_time, name=flow.time),
                    windows=known,
                    on_update=options["emit"] == "on_update",
                    is_whole=window is None,
                )
            )
            found.append(Flow(stream, kinds, identity, end))
            if mode == "downstream" and keep is None:
                self._keep_below(found[-1])
        self.agree += [(found[0].name, other.name) for other in found[1:]]
        return found

    def _counting(self, flow: Flow, *, stem: str) -> list[Flow]:
        """Declare one aggregate over windows that count tuples, in both modes."""
        dice, groups, orders = self.dice, self._groups(flow)[:1], self._orders(flow)
        results = draw_results(dice, self._rows(flow, groups, orders), stem=stem)
        rows, every = dice.choice([(1, 1), (2, 2), (2, 1), (5, 3), (1, None), (2, None), (5, None)])
        on_update, partitions = self.chance(0.4), dice.choice([None, None, None, 1, 2, 3])
        kinds = {name: flow.kinds[name] for name in groups}
        identity, time = (*groups, "window_start"), "__at"
        if every is None:
            identity = tuple(dict.fromkeys((*groups, *flow.identity)))
            time = flow.time
            own = (*flow.identity, time)
            kinds |= {n: flow.kinds.get(n, "timestamp") for n in own if not n.startswith("__")}
        else:
            kinds |= dict.fromkeys(("window_start", "window_end"), "long")
        kinds |= {name: drawn.kind for name, drawn in results.items()}
        found = []
        for mode in ("adaptive", "resident"):
            name = self.fresh(f"c{mode[:2]}")
            stream = flow.stream.aggregate(
                name,
                by=groups,
                window=sliding(rows=rows) if every is None else hopping(rows=rows, every=every),
                mode=mode,
                emit="on_update" if on_update else "on_close",
                order_by=[f"{name} desc" if largest else name for name, largest in orders],
                partitions=partitions,
                scope=self.scope(name),
                keep=self.kept(0.3),
                fields={name: drawn.text for name, drawn in results.items()},
            )
            self.boxes.append(
                oracle.Counting(
                    name=name,
                    input=flow.name,
                    by=groups,
                    identity=flow.identity,
                    time=flow.time,
                    rows=rows,
                    every=every,
                    results={name: drawn.means for name, drawn in results.items()},
                    on_update=on_update,
                )
            )
            found.append(Flow(stream, kinds, identity, time))
        self.agree.append((found[0].name, found[1].name))
        return found

    def _rows(
        self, flow: Flow, groups: tuple[str, ...], orders: tuple[tuple[str, bool], ...]
    ) -> Rows:
        ties = tuple((name, False) for name in flow.identity)
        by_time = ((flow.time, False), *ties)
        by_order = (*orders, *ties) if orders else by_time
        return Rows(flow.kinds, by_time, by_order, groups, self.times.unit)

    def _keep_below(self, flow: Flow) -> None:
        """Keep results behind a map, and sometimes a filter, that keep their identity."""
        seen = {name: flow.kinds[name] for name in flow.identity if name in flow.kinds}
        name, has_filter = self.fresh("named"), bool(seen) and self.chance(0.7)
        keep = None if has_filter else self.times.keep
        stream = flow.stream.map(name, fields={"pair": "n * 2"}, scope=self.scope(name), keep=keep)
        self.boxes.append(oracle.Map(name, flow.name, {"pair": lambda t: t["n"] * 2}))
        if has_filter:
            where, shown = draw_predicate(self.dice, seen, self.times.unit), self.fresh("shown")
            stream.where(shown, where.text, keep=self.times.keep)
            self.boxes.append(oracle.Where(shown, name, where.means))

    def _groups(self, flow: Flow) -> tuple[str, ...]:
        never = ("key", "at", "n", "window_start", "window_end")
        usable = [
            name
            for name, kind in flow.kinds.items()
            if kind not in ("double", "rough") and name not in never
        ]
        near = [name for name in ("product", "desk", "lots", "flag") if name in usable]
        some = near if near and self.chance(0.75) else usable
        return tuple(self.dice.sample(some, min(self.dice.choice([0, 1, 1, 2]), len(some))))

    def _orders(self, flow: Flow) -> tuple[tuple[str, bool], ...]:
        if self.chance(0.6):
            return ()
        names = self.dice.sample(list(flow.kinds), self.dice.choice([1, 1, 2]))
        return tuple((name, self.chance(0.5)) for name in names)


def _event_time(t: Tuple, *, name: str) -> int:
    return int(t[name]) - (name not in oracle.AT)
