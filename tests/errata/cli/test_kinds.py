"""Every kind of field goes in as a plain value, as JSON or as CSV, and comes out as one."""

import json
from datetime import date
from decimal import Decimal

import pytest

from errata import Network
from errata.client.input_file import CsvLines
from errata.client.json_lines import json_line
from errata.client.texts import display_values
from errata.testing import Driver

FIELDS = {
    "key": "string",
    "at": "timestamp-millis",
    "i": "int?",
    "l": "long?",
    "f": "float?",
    "d": "double?",
    "b": "boolean?",
    "y": "bytes?",
    "n": "decimal(30,2)?",
    "t": "date?",
    "u": "timestamp-micros?",
    "g": "uuid?",
}
PLAIN = {
    "key": "a",
    "at": 5,
    "i": -7,
    "l": 2**53 + 1,
    "f": 0.1,
    "d": 1e300,
    "b": True,
    "y": b"\xff\x00?",
    "n": Decimal("12345678901234567890.10"),
    "t": date(2024, 2, 29),
    "u": -1,
    "g": "550e8400-e29b-41d4-a716-446655440000",
}
JSON = (
    '{"key":"a","at":5,"i":-7,"l":9007199254740993,"f":0.1,"d":1e300,"b":true,"y":"/wA/",'
    '"n":12345678901234567890.10,"t":"2024-02-29","u":-1,'
    '"g":"550e8400-e29b-41d4-a716-446655440000"}'
)
EMPTY = dict.fromkeys(FIELDS) | {"key": "b", "at": 6}


@pytest.fixture
def driver():
    net = Network("kinds")
    net.source("s", fields=FIELDS, identity=["key"], event_time="at", keep="1d")
    with Driver(net) as running:
        yield running


def test_plain_values_come_back_as_they_are_and_as_json(driver) -> None:
    driver.send("s", [{"op": "insert", "after": PLAIN}, {"op": "insert", "after": EMPTY}])
    driver.close_epoch()
    assert driver.table("s") == [PLAIN, EMPTY]
    assert [type(v) for v in driver.table("s")[0].values()] == [type(v) for v in PLAIN.values()]
    (first, _) = driver.revisions("s")
    assert json_line(first["after"]).decode().replace("1e+300", "1e300") == JSON
    assert not driver.dead_letters()


def test_what_is_printed_as_json_can_be_sent_again(driver) -> None:
    driver.send("s", f'{{"op": "insert", "after": {JSON}}}')
    driver.close_epoch()
    assert driver.table("s") == [PLAIN]


def test_csv_cells_of_every_kind_are_read(driver) -> None:
    arc = driver.plan.topology.arcs["s"]
    row = json.loads(JSON, parse_float=str, parse_int=str)
    cells = ["true" if value is True else value for value in row.values()]
    made = CsvLines(arc, ",".join(FIELDS).encode(), name="f.csv")
    text = ",".join(cells) + "\nb,6" + "," * (len(FIELDS) - 2) + "\n"
    for line in made.lines(text.encode()):
        driver.send_raw("s", line)
    driver.close_epoch()
    assert driver.table("s") == [PLAIN, EMPTY]


def test_times_are_shown_as_times_and_bytes_in_hexadecimal_digits(driver) -> None:
    fields = driver.plan.topology.arcs["s"].fields
    told = display_values(
        fields, {"at": 5, "u": -1, "y": b"\xff\x00", "t": date(2024, 2, 29), "n": None}
    )
    assert told == [
        "1970-01-01 00:00:00.005",
        "1969-12-31 23:59:59.999999",
        "ff00",
        date(2024, 2, 29),
        None,
    ]
    assert display_values(fields, {"u": 1_000_000, "at": None}) == ["1970-01-01 00:00:01", ""]
