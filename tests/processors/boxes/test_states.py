"""States and results: filters, sharing, expressions around calls, users' functions."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from errata.processors.aggregates.compensating import Compensating
from errata.processors.boxes.states import START, Result
from errata.processors.compile.aggregate import Results
from errata.processors.expressions.errors import ExpressionError, UserFunctionError
from errata.schemas.arc import Arc
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType, physical

FIELDS = {
    "id": "string",
    "at": "timestamp-millis",
    "product": "string",
    "price": "decimal(9,2)",
    "size": "long?",
    "ratio": "double?",
    "is_buy": "boolean",
}
ARC = Arc(
    "trades",
    {name: FieldType.parse(kind) for name, kind in FIELDS.items()},
    ("id",),
    "at",
    ("product",),
)
GROUPS = {"product": FieldType("string"), START: FieldType("timestamp-millis")}
TUPLES = pl.DataFrame(
    [
        ("d", 4, "x", 950, 4, 0.5, True),
        ("a", 1, "x", 1000, 3, 2.0, True),
        ("c", 3, "x", 1100, None, None, False),
        ("b", 3, "y", 1250, 1, 1.0, False),
    ],
    schema=physical(ARC.fields),
    orient="row",
)


class Made:
    """Results over two windows, of product x and y, that hold the tuples."""

    def __init__(self, *given: Any, order_by: tuple[str, ...] = ()) -> None:
        self.making = Results(ARC, GROUPS, order_by)
        self.results = [self.making.make(each) for each in given]
        keys = pl.DataFrame({"product": ["x", "y"], START: [0, 10]})
        self.empty = keys.with_columns([c for state in self.states for c in state.init(2)])
        self.full = self.moved(self.empty, [0, 1, 2, 3], sign=1)

    @property
    def states(self) -> list[Any]:
        return list(self.making.states.values())

    def moved(self, states: pl.DataFrame, rows: list[int], *, sign: int) -> pl.DataFrame:
        index = pl.Series(rows, dtype=pl.UInt32)
        groups = (TUPLES["product"] == "y").cast(pl.UInt32).gather(index)
        columns = [
            column
            for state in self.states
            for column in state.move(states, TUPLES, rows=index, groups=groups, sign=sign)
        ]
        return states.with_columns(columns)

    def values(self, states: pl.DataFrame | None = None) -> list[list[Any]]:
        shown = self.full if states is None else states
        return [result.emitted(shown)[0].to_list() for result in self.results]


@pytest.mark.parametrize(
    ("text", "expected", "kind"),
    [
        ("sum(size)", [7, 1], "long?"),
        ("sum(size) + 1", [8, 2], "long?"),
        ("max(price) - min(price)", [150, 0], "decimal(10,2)?"),
        ("case when count(*) > 2 then sum(size) end", [7, None], "long?"),
        ("sum(size) / count(size)", [3.5, 1.0], "double?"),
        ("coalesce(sum(ratio), 0.0) > 1", [True, False], "boolean"),
        ("count(*) filter (where size > 3)", [1, 0], "long"),
        ("count_if(is_buy) + count(*)", [5, 1], "long?"),
        ("sum(size) filter (where is_buy) - sum(size) filter (where not is_buy)", [None, None], ""),
        ("first(size)", [3, 1], "long?"),
        ("last(id) filter (where price > 9.75)", ["c", "b"], "string?"),
        ("last(size) ignore nulls", [4, 1], "long?"),
        ("max_by(id, size)", ["d", "b"], "string?"),
        ("case when product = 'x' then count(*) else 0L end", [3, 0], "long"),
        ("if(window_start = timestamp '1970-01-01 00:00:00', sum(size), 0L)", [7, 0], "long?"),
    ],
)
def test_an_expression_has_the_value_and_type_of_its_calls(
    text: str, expected: list[Any], kind: str
) -> None:
    made = Made(text)
    assert made.values() == [expected]
    assert not kind or str(made.results[0].type) == kind
    assert made.results[0].emitted(made.full)[0].dtype == made.results[0].type.dtype
    back = made.moved(made.full, [0, 1, 2, 3], sign=-1)
    assert back.equals(made.empty)


def test_tuples_for_which_a_filter_is_null_do_not_take_part() -> None:
    assert Made("count(*) filter (where size > 0)", "count(*)").values() == [[2, 1], [3, 1]]


def test_results_share_the_states_of_calls_with_the_same_arguments_and_filter() -> None:
    made = Made(
        "sum(size)",
        "avg( size )",
        "sum(size) / count(*)",
        "count(*)",
        "sum(size) filter (where is_buy)",
    )
    assert len(made.states) == 3
    assert [state.prefix for state in made.states] == ["__0_", "__1_", "__2_"]


def test_order_by_decides_and_the_identity_breaks_ties() -> None:
    assert Made("first(id)", "last(id)").values() == [["a", "b"], ["d", "b"]]
    by_size = Made("first(id)", "last(id)", order_by=("size",))
    assert by_size.values() == [["c", "b"], ["d", "b"]]  # null first
    descending = Made("first(id)", "last(id)", order_by=("size desc",))
    assert descending.values() == [["d", "b"], ["c", "b"]]
    by_buy = Made("first(id)", "last(id)", order_by=("is_buy desc",))
    assert by_buy.values() == [["a", "b"], ["c", "b"]]
    twice = Made("first(id)", order_by=("is_buy ASC", "`price` DESC"))
    assert twice.values() == [["c", "b"]]


def test_ties_in_event_time_are_broken_by_identity() -> None:
    tied = replace(ARC, event_time="at", identity=("price", "id"))
    making = Results(tied, GROUPS)
    state = making.make("last(id)").emissions[0].state
    assert [argument.text for argument in state.arguments] == ["id", "`at`", "`price`", "`id`"]


def test_the_hidden_part_is_what_a_result_can_be_recalled_from() -> None:
    made = Made("max(price)", "first(size)", "sum(ratio)")
    hidden = {name: kind for state in made.states for name, kind in state.hidden.items()}
    assert not any("ties_" in name or "depth" in name for name in hidden)
    assert made.full.select(list(hidden)).schema == physical(hidden)
    stored = made.full.select("product", START, *hidden)
    live = stored.select("product", START).with_columns(
        [column for state in made.states for column in state.recall(stored)]
    )
    assert live.columns == made.full.columns
    assert made.values(live) == made.values()
    raised = made.moved(made.moved(live, [2], sign=-1), [2], sign=1)
    assert made.values(raised) == made.values()
    assert all(state.exact(raised).all() for state in made.states)


def test_merging_states_unites_their_contents() -> None:
    made = Made("max(price)", "last(id)", "sum(size) filter (where is_buy)")
    one, other = made.moved(made.empty, [0, 3], sign=1), made.moved(made.empty, [1, 2], sign=1)
    merged = one.with_columns([c for state in made.states for c in state.merge(one, other)])
    assert made.values(merged) == made.values()


class Vwap(Compensating):
    """Turnover by size; can't take a price of 9.50."""

    result = "double?"
    parts = {"turnover": "long", "size": "long"}  # noqa: RUF012

    def _sums(self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame) -> pl.DataFrame:
        price, size = values
        if (price == 950).any():
            raise ValueError("950 is no price")
        frame = pl.DataFrame(
            {"g": groups, "turnover": price.cast(pl.Int64) * size.fill_null(0), "size": size}
        )
        index = pl.DataFrame({"g": pl.Series(range(states.height), dtype=pl.UInt32)})
        sums = frame.group_by("g").sum()
        return index.join(sums, on="g", how="left", maintain_order="left").fill_null(0)

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        return self.merge(states, self._sums(states, groups, values))

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        sums = self._sums(states, groups, values)
        return pl.DataFrame([states[part] - sums[part] for part in self.parts])

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame([one[part] + other[part] for part in self.parts])

    def emit(self, states: pl.DataFrame) -> pl.Series:
        size = states["size"]
        return (states["turnover"] / size / 100).set(size == 0, None)


def test_a_function_of_a_user_works_like_any_other() -> None:
    made = Made(Vwap("price + 1", "size"), "count(*)")
    assert made.values()[0] == [(3 * 11.0 + 4 * 10.5) / 7, 13.5]
    assert str(made.results[0].type) == "double?"
    assert made.results[0].text.endswith("Vwap('price + 1', 'size')")
    assert made.states[0].hidden == {
        "__0_turnover": FieldType("long"),
        "__0_size": FieldType("long"),
    }


def test_the_tuple_that_a_users_function_fails_on_is_named_by_its_index() -> None:
    making = Results(ARC, GROUPS)
    making.make(Vwap("price", "size"))
    (state,) = making.states.values()
    states = pl.DataFrame(state.init(1))
    rows = pl.Series([3, 2, 0, 1], dtype=pl.UInt32)
    groups = pl.repeat(0, 4, dtype=pl.UInt32, eager=True)
    with pytest.raises(
        UserFunctionError, match=r"Vwap\('price', 'size'\), accumulate: raised Val"
    ) as caught:
        state.move(states, TUPLES, rows=rows, groups=groups, sign=1)
    assert TUPLES["id"][caught.value.row or 0] == "d"


@pytest.mark.parametrize(
    ("given", "character", "text"),
    [
        ("sum(price) / sum(product)", 14, "needs a number for sum, found sum.string."),
        ("count(*) + max(size) / prise", 24, "found 'prise'"),
        ("sum(size) + 'a'", 1, "two numbers"),
        ("1 + bool_or(size)", 5, "needs a boolean for bool_or"),
    ],
)
def test_a_fault_in_an_expression_points_at_its_character(
    given: str, character: int, text: str
) -> None:
    with pytest.raises(ExpressionError, match=text) as caught:
        Made(given)
    assert caught.value.position + 1 == character


@pytest.mark.parametrize("order_by", [("prise",), ("size downwards",), ("sum(size)",), ("",)])
def test_an_order_by_something_else_is_refused(order_by: tuple[str, ...]) -> None:
    with pytest.raises(ErrataError):
        Results(ARC, GROUPS, order_by)


def test_arguments_of_a_users_function_are_checked() -> None:
    with pytest.raises(ExpressionError, match="did you mean price"):
        Made(Vwap("prise", "size"))
    assert isinstance(Made(Vwap("price + 1", "size")).results[0], Result)
