"""Random lookups and loops: chains, cycles, sums that feed themselves."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from errata import Stream, python
from tests.laws import oracle, windows
from tests.laws.loops import Iterate, Lookup
from tests.laws.oracle import Tuple
from tests.laws.random_boxes import FIELDS, Declaring, Flow, kind

LINKS = {"next": "max(next)", "n": "count(*)"}
GROUPS = ("product", "desk", "flag")
Step = Callable[[Flow, str], Flow]


class Looping(Declaring):
    """Declares lookups and loops, and the oracle's boxes for them."""

    fails: dict[str, tuple[str, Callable[[Tuple], bool]]]

    def lookup(self, one: Flow, other: Flow) -> Flow | None:
        """Look up in one arc from another, by fields of matching kinds; None if there are none."""
        dice, name, pairs = self.dice, self.fresh("lookup"), dict[str, str]()
        for its in other.identity:
            fit = [n for n, kind in one.kinds.items() if other.kinds.get(its) == kind]
            fit = [n for n in fit if n not in pairs]
            if not fit:
                return None
            pairs[its if its in fit and self.chance(0.6) else dice.choice(fit)] = its
        is_left = self.chance(0.6)
        texts, means = dict[str, str](), dict[str, Callable[[Tuple, Tuple], Any]]()
        kinds = dict(one.kinds)
        for number in range(dice.choice([1, 2])):
            of = dice.choice(list(other.kinds))
            own = [n for n, kind in one.kinds.items() if kind == other.kinds[of]]
            own = [n for n in own if n not in (*one.identity, one.time, "n")]
            if own and self.chance(0.5):
                field = dice.choice(own)
                texts[field] = f"coalesce(o.{of}, {field})"
                means[field] = partial(_coalesced, of=of, name=field)
            else:
                field = f"{name}f{number}"
                texts[field], means[field] = f"o.{of}", partial(_others, of=of)
                kinds[field] = other.kinds[of]
        stream = one.stream.lookup(
            name,
            other.stream,
            on=pairs,
            alias="o",
            how="left" if is_left else "inner",
            keep=self.kept(0.3),
            scope=self.scope(name),
            partitions=dice.choice([None, None, None, 1, 3]),
            fields=texts,
        )
        on, kept = tuple(pairs.items()), _kept(one)
        self.boxes.append(Lookup(name, (one.name, other.name), on, is_left, kept, means))
        return replace(one, stream=stream, kinds=kinds)

    def loop(self, flow: Flow) -> Flow:
        """Iterate over an arc, by its own fields or by links between products."""
        dice = self.dice
        free = [name for name in ("product", "lots") if _is_free(flow, name)]
        links = None
        if has_links(flow) and self.chance(0.7):
            links = self._links(flow)
            if not free or self.chance(0.4):
                flow, free = links, ["next"]
        if not free:
            return flow
        name = self.fresh("loop")
        steps: list[Step] = []
        for field in free:
            if field == "lots":
                steps += [self._counted, self._dropped, self._routed]
                steps += [self._levelled] * any(group in flow.kinds for group in GROUPS)
            elif field == "product" and links is not None:
                steps += [partial(self._linked, links=links, field=field)] * 3
            elif field == "next":
                steps += [partial(self._linked, links=links, field=field), self._jumped] * 2
        if not steps:
            return flow
        chosen = dice.sample(steps, min(dice.choice([1, 1, 2]), len(steps)))
        outer, inner, self.fails = self.boxes, list[oracle.Box](), {}
        gives = [name]

        def body(stream: Stream) -> Stream:
            self.boxes, turned = inner, flow.to(stream)
            for number, step in enumerate(chosen):
                turned = step(turned, f"{name}_{number}")
            gives[0] = turned.name
            return turned.stream

        rounds = dice.choice([1, 2, 3, 5, 20])
        try:
            stream = self.net.iterate(
                name, flow.stream, body, rounds=rounds, keep=self.kept(0.4), scope=self.scope(name)
            )
        finally:
            self.boxes = outer
        loop = Iterate(
            name, flow.name, _kept(flow), tuple(inner), gives[0], rounds, dict(self.fails)
        )
        self.boxes.append(loop)
        return flow.to(stream)

    def _links(self, flow: Flow) -> Flow:
        """Return for each product its successor, if any: chains and cycles of three."""
        name, by = self.fresh("next"), self.fresh("links")
        text = "case lots when 1 then 'tea' when 2 then 'fig' when 40 then 'yam' end"
        stream = flow.stream.map(name, fields={"next": text})
        self.boxes.append(oracle.Map(name, flow.name, {"next": _next}))
        options = {"window": None, "emit": "on_update", "keep": self.kept(0.5)}
        stream = stream.aggregate(by, by=["product"], fields=LINKS, **options)
        results = {"next": oracle.largest("next"), "n": oracle.count()}
        self.boxes.append(_whole(by, name, ("product",), results, flow.time))
        kinds = {"product": "string", "next": "string", "n": "long"}
        return Flow(stream, kinds, ("product",), "__window_end")

    # ---------------------------------------------------------------- the boxes of a round

    def _map(self, flow: Flow, name: str, text: str, means: Callable[[Tuple], Any]) -> Flow:
        """Replace a number, sometimes by a Python function that raises for some tuples."""
        if self.chance(0.5):
            self.boxes.append(oracle.Map(name, flow.name, {"lots": means}))
            return flow.to(flow.stream.map(name, lots=text))
        self.fails[name] = flow.name, _is_raised_for
        taken = oracle.Where(f"{name}.taken", flow.name, lambda t: not _is_raised_for(t))
        self.boxes += [taken, oracle.Map(name, taken.name, {"lots": means})]
        return flow.to(flow.stream.map(name, lots=python(_raising(means), "int", "lots")))

    def _counted(self, flow: Flow, name: str) -> Flow:
        """Decrease large numbers by four; one and two alternate forever."""
        text = "case when lots > 4 then lots - 4 when lots in (1, 2) then 3 - lots else lots end"
        return self._map(flow, name, f"coalesce(cast({text} as int), lots)", _count)

    def _dropped(self, flow: Flow, name: str) -> Flow:
        """Decrease numbers by one, and drop tuples at zero."""
        stream = flow.stream.where(f"{name}w", "lots <> 0")
        self.boxes.append(oracle.Where(f"{name}w", flow.name, lambda t: t["lots"] != 0))
        text = "if(lots > 0 and lots < 9, coalesce(lots - 1, lots), lots)"
        return self._map(flow.to(stream), name, text, _less)

    def _routed(self, flow: Flow, name: str) -> Flow:
        """Route tuples above a bound to one output, and the others to another."""
        stem = f"{name}r"
        above, rest = flow.stream.route(fields={f"{stem}0": "lots > 1", f"{stem}1": "rest"})
        self.boxes.append(oracle.Where(f"{stem}0", flow.name, lambda t: t["lots"] > 1))
        self.boxes.append(oracle.Where(f"{stem}1", flow.name, lambda t: not t["lots"] > 1))
        halved = self._map(
            flow.to(above), f"{name}h", "coalesce(cast(lots div 2 as int), lots)", _half
        )
        self.boxes.append(oracle.Union(name, (halved.name, rest.name)))
        return flow.to(self.net.union(name, halved.stream, rest))

    def _levelled(self, flow: Flow, name: str) -> Flow:
        """Raise each number by three until it reaches the largest of its group."""
        by = next(name for name in GROUPS if name in flow.kinds)
        options = {"window": None, "emit": "on_update"}
        top = flow.stream.aggregate(f"{name}t", by=[by], fields={"most": "max(lots)"}, **options)
        results = {"most": oracle.largest("lots")}
        self.boxes.append(_whole(f"{name}t", flow.name, (by,), results, flow.time))
        text = "if(o.most > lots + 2, coalesce(lots + 3, lots), lots)"
        stream = flow.stream.lookup(name, top, on=[by], alias="o", lots=text)
        inputs, means = (flow.name, f"{name}t"), {"lots": _level}
        self.boxes.append(Lookup(name, inputs, ((by, by),), True, _kept(flow), means))
        return flow.to(stream)

    def _linked(self, flow: Flow, name: str, *, links: Flow, field: str) -> Flow:
        """Replace a product by its successor, if there is one."""
        text = f"coalesce(o.next, {field})"
        stream = flow.stream.lookup(
            name, links.stream, on={field: "product"}, alias="o", fields={field: text}
        )
        return self._followed(flow.to(stream), name, (flow.name, links.name), field)

    def _jumped(self, flow: Flow, name: str) -> Flow:
        """Replace each link by the link of its successor in the same round: chains halve."""
        text = "coalesce(o.next, next)"
        stream = flow.stream.lookup(name, flow.stream, on={"next": "product"}, alias="o", next=text)
        return self._followed(flow.to(stream), name, (flow.name, flow.name), "next")

    def _followed(self, flow: Flow, name: str, inputs: tuple[str, str], field: str) -> Flow:
        means = {field: partial(_coalesced, of="next", name=field)}
        pairs = ((field, "product"),)
        self.boxes.append(Lookup(name, inputs, pairs, True, _kept(flow), means))
        return flow


def has_links(flow: Flow) -> bool:
    """Return whether an arc has links."""
    return flow.kinds.get("lots") == "int" and flow.kinds.get("product") == "string"


def _is_free(flow: Flow, name: str) -> bool:
    return flow.kinds.get(name) == kind(FIELDS[name]) and name not in flow.identity


def _kept(flow: Flow) -> tuple[str, ...]:
    return tuple(name for name in (*flow.identity, flow.time) if name.startswith("__"))


def _whole(
    name: str, above: str, by: tuple[str, ...], results: dict[str, Any], time: str
) -> oracle.Aggregate:
    return oracle.Aggregate(
        name, above, by, 0, 0, results,
        windows=windows.whole, on_update=True, is_whole=True, time=partial(_time, name=time),
    )  # fmt: skip


def _time(t: Tuple, *, name: str) -> int:
    return int(t[name]) - (name not in oracle.AT)


def _others(left: Tuple, right: Tuple, *, of: str) -> Any:
    return right[of]


def _coalesced(left: Tuple, right: Tuple, *, of: str, name: str) -> Any:
    return left[name] if right[of] is None else right[of]


def _next(t: Tuple) -> str | None:
    return {1: "tea", 2: "fig", 40: "yam"}.get(t["lots"])


def _count(t: Tuple) -> int:
    lots = t["lots"]
    return lots - 4 if lots > 4 else 3 - lots if lots in (1, 2) else lots


def _raising(means: Callable[[Tuple], int]) -> Callable[[int], int]:
    def called(lots: int) -> int:
        if _is_raised_for({"lots": lots}):
            raise ValueError(f"not {lots}")
        return means({"lots": lots})

    return called


def _is_raised_for(t: Tuple) -> bool:
    return t["lots"] in (36, 20, 1)


def _less(t: Tuple) -> int:
    return t["lots"] - 1 if 0 < t["lots"] < 9 else t["lots"]


def _half(t: Tuple) -> int:
    return int(t["lots"] // 2)


def _level(left: Tuple, right: Tuple) -> int:
    lots = left["lots"]
    return lots + 3 if right["most"] is not None and right["most"] > lots + 2 else lots
