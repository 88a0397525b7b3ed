"""What a user's own function must not do is told with its name and the step."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from errata.processors.aggregates.compensating import Compensating
from errata.processors.aggregates.user_function import UserFunction
from errata.processors.expressions.errors import UserFunctionError

GROUPS = pl.Series([0, 1, 0], dtype=pl.UInt32)
ROWS = pl.DataFrame({"0": [3, 4, 5]})


class Total(Compensating):
    """A plain sum."""

    result = "long?"
    parts = {"total": "long"}  # noqa: RUF012

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        total = states["total"].to_list()
        for group, value in zip(groups, values.to_series(0), strict=True):
            if value < 0:
                raise ValueError(f"below zero: {value}")
            total[group] += value
        return pl.DataFrame({"total": total})

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        return pl.DataFrame(
            [states["total"] - self.accumulate(self.init(states.height), groups, values)["total"]]
        )

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame([one["total"] + other["total"]])

    def emit(self, states: pl.DataFrame) -> pl.Series:
        return states["total"]


class Distinct(Compensating):
    """How many different values there are, from a list of all."""

    result = "long"
    parts = {"values": pl.List(pl.Int64)}  # noqa: RUF012

    def accumulate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        found = states["values"].to_list()
        for group, value in zip(groups, values.to_series(0), strict=True):
            found[group] = sorted([*found[group], value])
        return pl.DataFrame({"values": found}, schema={"values": pl.List(pl.Int64)})

    def compensate(
        self, states: pl.DataFrame, groups: pl.Series, values: pl.DataFrame
    ) -> pl.DataFrame:
        found = states["values"].to_list()
        for group, value in zip(groups, values.to_series(0), strict=True):
            found[group].remove(value)
        return pl.DataFrame({"values": found}, schema={"values": pl.List(pl.Int64)})

    def merge(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        both = pl.DataFrame([one["values"].alias("one"), other["values"].alias("other")])
        return both.select(pl.concat_list("one", "other").list.sort().alias("values"))

    def emit(self, states: pl.DataFrame) -> pl.Series:
        return states["values"].list.n_unique().cast(pl.Int64)


def test_a_state_may_be_a_list_which_no_result_keeps() -> None:
    distinct = UserFunction(Distinct("size"))
    states = distinct.accumulate(distinct.init(3), GROUPS, ROWS)
    states = distinct.merge(states, distinct.init(3))
    assert distinct.emit(states).to_list() == [2, 1, 0]
    assert distinct.emit(distinct.compensate(states, GROUPS[:1], ROWS[:1])).to_list() == [1, 1, 0]
    assert distinct.kept == ()


def test_a_list_can_not_be_kept_and_is_never_null() -> None:
    keeping = type("Keeping", (Distinct,), {"kept": ("values",)})
    with pytest.raises(UserFunctionError, match="needs kept to name parts that are not lists"):
        UserFunction(keeping("size"))
    nulls = pl.DataFrame({"values": [None, [1]]}, schema={"values": pl.List(pl.Int64)})
    broken = type("Broken", (Distinct,), {"merge": lambda *_: nulls})
    with pytest.raises(UserFunctionError, match=r"no null in List.*, but empty lists in part val"):
        UserFunction(broken("size")).merge(nulls, nulls)


def test_a_function_that_keeps_to_the_contract_is_passed_through() -> None:
    total = UserFunction(Total("size"))
    states = total.accumulate(total.init(2), GROUPS, ROWS)
    states = total.merge(states, total.recall(states))
    assert total.emit(total.compensate(states, GROUPS[:1], ROWS[:1])).to_list() == [13, 8]
    assert total.exact(states).to_list() == [True, True]
    assert (str(total.result), total.name) == ("long?", "Total('size')")
    assert total.text.endswith("test_user_function.Total('size')")


def test_what_a_user_keeps_is_kept() -> None:
    forgetful = type("Forgetful", (Total,), {"parts": {"total": "long", "best": "long?"}})
    assert UserFunction(forgetful("size")).kept == ("total", "best")
    forgetful.kept = ("total",)
    assert UserFunction(forgetful("size")).kept == ("total",)


def test_objects_share_a_state_only_with_themselves() -> None:
    one = Total("size")
    assert UserFunction(one).state_key == UserFunction(one).state_key
    assert UserFunction(one).state_key != UserFunction(Total("size")).state_key


BROKEN: list[tuple[str, str, Callable[..., Any], str]] = [
    ("accumulate", "accumulate", lambda s, *_: s.head(1), "needs 2 values, one per group in part"),
    ("accumulate", "accumulate", lambda s, *_: s.rename({"total": "x"}), r"parts total; returned"),
    ("accumulate", "accumulate", lambda s, *_: [1, 2], "needs a frame .* returned list"),
    ("compensate", "compensate", lambda s, *_: s.cast(pl.Int32), "needs Int64 for long .* Int32"),
    (
        "merge",
        "merge",
        lambda a, b: pl.DataFrame({"total": [None, 1]}),
        "no null in long, or .*long",
    ),
    ("merge", "merge", lambda a, b: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ("emit", "emit", lambda s: [1, 2], "needs a polars Series; returned a list"),
    ("emit", "emit", lambda s: s["total"].cast(pl.String), "needs Int64 for long.* in column"),
    ("emit", "emit", lambda s: s["missing"], "raised ColumnNotFoundError"),
    ("exact", "exact", lambda s: pl.Series([True]), "needs 2 values"),
    ("init", "init", lambda count: pl.DataFrame({"total": [0]}), "needs 2 values"),
]


@pytest.mark.parametrize(("method", "step", "wrong", "text"), BROKEN)
def test_whatever_a_function_returns_that_it_must_not_is_told(
    monkeypatch: pytest.MonkeyPatch, method: str, step: str, wrong: Any, text: str
) -> None:
    total = UserFunction(Total("size"))
    states = total.init(2)
    monkeypatch.setattr(Total, method, lambda self, *given: wrong(*given))
    calls: dict[str, Callable[[], Any]] = {
        "init": lambda: total.init(2),
        "accumulate": lambda: total.accumulate(states, GROUPS, ROWS),
        "compensate": lambda: total.compensate(states, GROUPS, ROWS),
        "merge": lambda: total.merge(states, states),
        "emit": lambda: total.emit(states),
        "exact": lambda: total.exact(states),
    }
    with pytest.raises(UserFunctionError, match=text) as caught:
        calls[step]()
    assert (caught.value.function, caught.value.step) == ("Total('size')", step)
    assert caught.value.row is None


@pytest.mark.parametrize("at", [0, 1, 5, 99])
def test_the_row_that_a_function_fails_on_is_found(at: int) -> None:
    total = UserFunction(Total("size"))
    values = [1] * 100
    values[at] = -7
    groups = pl.Series([0, 1] * 50, dtype=pl.UInt32)
    for step in (total.accumulate, total.compensate):
        with pytest.raises(UserFunctionError, match="raised ValueError: below zero: -7") as caught:
            step(total.init(2), groups, pl.DataFrame({"0": values}))
        assert caught.value.row == at
        assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("bad", [[], [0], [99], [3, 4, 50], list(range(100))])
def test_each_row_that_a_function_does_not_take_is_found(bad: list[int]) -> None:
    total = UserFunction(Total("size"))
    values = [-7 if row in bad else 1 for row in range(100)]
    refused = total.refused(pl.DataFrame({"0": values}))
    assert sorted(refused) == bad
    assert all("accumulate: raised ValueError: below zero: -7" in why for why in refused.values())


def test_a_row_is_judged_by_itself_whatever_stands_beside_it() -> None:
    class Rising(Total):
        """Takes nothing into a group that has something."""

        def accumulate(self, states: Any, groups: Any, values: Any) -> Any:
            if (states["total"] > 0).any() or groups.is_duplicated().any():
                raise ValueError("not the first")
            return super().accumulate(states, groups, values)

    assert UserFunction(Rising("size")).refused(pl.DataFrame({"0": [1, 2, 3]})) == {}


@pytest.mark.parametrize("bad", [[], [0], [1, 2], [4], [0, 1, 2, 3, 4]])
def test_results_are_null_where_emit_raises_and_right_elsewhere(
    monkeypatch: pytest.MonkeyPatch, bad: list[int]
) -> None:
    total = UserFunction(Total("size"))
    states = total.init(5).with_columns(total=pl.Series([-1 if r in bad else r for r in range(5)]))

    def emit(self: Total, states: pl.DataFrame) -> pl.Series:
        if (states["total"] < 0).any():
            raise ValueError("below zero")
        return states["total"]

    monkeypatch.setattr(Total, "emit", emit)
    results, failures = total.emitted(states)
    assert results.to_list() == [None if row in bad else row for row in range(5)]
    assert sorted(failures) == bad


def test_a_function_whose_init_raises_refuses_no_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Total, "init", lambda self, count: 1 / 0)
    with pytest.raises(UserFunctionError, match="init: raised ZeroDivisionError"):
        UserFunction(Total("size")).refused(pl.DataFrame({"0": [1]}))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"result": "number"}, "declaration: raised FieldTypeError: field type 'number'"),
        ({"parts": {"total": "longs"}}, "declaration: raised FieldTypeError"),
        ({"kept": ("count",)}, "declaration: needs kept to name parts"),
    ],
)
def test_a_function_without_readable_types_is_refused(
    attributes: dict[str, object], text: str
) -> None:
    with pytest.raises(UserFunctionError, match=text):
        UserFunction(type("Broken", (Total,), attributes)("size"))


def test_a_function_that_declares_nothing_is_refused() -> None:
    bare = type("Bare", (Total,), {})
    bare.__bases__ = (Compensating,)
    for name in ("accumulate", "compensate", "merge", "emit"):
        setattr(bare, name, getattr(Total, name))
    bare.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    with pytest.raises(UserFunctionError, match="declaration: raised AttributeError"):
        UserFunction(bare())
