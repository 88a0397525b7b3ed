"""Which functions a stored result can be revised of, by the modes that are legal beside them."""

import pytest

from errata import Compensating, Network, NetworkError, ohlc, tumbling
from errata.processors.compile.compiler import compile_network
from tests.processors.aggregates.test_user_function import Distinct

FIELDS = {"id": "string", "at": "timestamp-millis", "price": "double", "size": "long"}
REASON = "percentile(price, 0.99) can't be revised from a stored result"


def network(mode: str = "adaptive", **results: str | Compensating) -> Network:
    net = Network("tape")
    trades = net.source(
        "trades", topic="t", fields=FIELDS, identity=["id"], event_time="at", keep="1d"
    )
    trades.aggregate(
        "bars",
        by=[],
        window=tumbling("1m"),
        mode=mode,
        keep="1d",
        fields={"n": "count(*)", **results},
    )
    return net


def test_adaptive_replays_beside_a_function_that_keeps_nothing() -> None:
    choice = compile_network(network(p99="percentile(price, 0.99)")).choices["bars"]
    assert (choice.mode, choice.reason) == ("upstream", f"downstream is illegal: {REASON}")


def test_downstream_is_refused_beside_a_function_that_keeps_nothing() -> None:
    with pytest.raises(NetworkError) as caught:
        compile_network(network("downstream", p99="percentile(price, 0.99)"))
    assert REASON in str(caught.value)
    assert "mode='upstream' or mode='resident'" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["corr(price, size)", "vwap(price, size)", "covar_pop(size, size)"]
)
def test_downstream_is_legal_beside_sums_of_products(text: str) -> None:
    assert compile_network(network("downstream", x=text)).choices["bars"].mode == "downstream"


def test_downstream_is_legal_beside_bars() -> None:
    choice = compile_network(network("downstream", **ohlc("price"))).choices["bars"]
    assert choice.mode == "downstream"


def test_a_users_function_whose_state_is_a_list_is_never_revised_from_a_result() -> None:
    choice = compile_network(network(found=Distinct("size"))).choices["bars"]
    assert choice.mode == "upstream"
    assert "Distinct('size') can't be revised from a stored result" in choice.reason


@pytest.mark.parametrize("mode", ["upstream", "resident"])
def test_other_modes_are_legal_beside_any_function(mode: str) -> None:
    plan = compile_network(network(mode, p99="percentile(price, 0.99)"))
    assert plan.choices["bars"].mode == mode
