"""The driver: what it takes as lines."""

from errata import Network, tumbling
from errata.testing import Driver


def test_a_line_may_be_a_mapping_or_its_json_text():
    net = Network("lines")
    fields = {"key": "string", "at": "timestamp-millis"}
    trades = net.source("trades", fields=fields, identity=["key"], event_time="at", keep="1d")
    trades.aggregate("counts", by=[], window=tumbling("1m"), n="count(*)")
    with Driver(net) as driver:
        driver.send("trades", '{"op": "insert", "after": {"key": "a", "at": 1}}')
        driver.send(
            "trades", [b'{"op": "insert", "after": {"key": "b", "at": 2}}', '{"epoch": true}']
        )
        driver.send(
            "trades", [{"op": "insert", "after": {"key": "c", "at": 60_000}}, {"epoch": True}]
        )
        assert driver.epoch == 2
        assert [r["after"]["n"] for r in driver.revisions("counts")] == [2]
