"""Bad input is a dead letter with its bytes and a reason, or counted; the stream goes on."""

import json
from decimal import Decimal

import pytest

from errata import Network, tumbling
from errata.processors.compile.compiler import compile_network
from errata.processors.envelopes.batch import Batch
from errata.processors.envelopes.make import make
from errata.schemas import framing
from errata.testing import Driver
from errata.topics.registry import UnknownSchemaError
from tests.processors.envelopes.records import FIELDS, avro

MINUTE = 60_000


def network(*, keep: str = "1h") -> Network:
    net = Network("bad")
    trades = net.source("trades", fields=FIELDS, identity=["key"], event_time="at", keep=keep)
    trades.aggregate("sums", by=[], window=tumbling("10m"), total="sum(price)", n="count(*)")
    return net


@pytest.fixture
def driver():
    with Driver(network()) as running:
        yield running


def row(key: str = "a", *, at: int | None = MINUTE, price: object = 5, **more: object):
    return {"key": key, "at": at, "price": price} | more


def insert(*args, **more):
    return {"op": "insert", "after": row(*args, **more)}


BAD = {
    "not json": (b"{", "undecodable"),
    "not utf-8": (b'{"op": "\xff\xfe"}', "undecodable"),
    "an array": (b"[1, 2]", "undecodable"),
    "empty": (b"", "undecodable"),
    "no op": (json.dumps({"after": row()}).encode(), "undecodable"),
    "unknown op": (json.dumps({"op": "upsert", "after": row()}).encode(), "undecodable"),
    "no after": (b'{"op": "insert"}', "undecodable"),
    "missing field": (b'{"op": "insert", "after": {"key": "a", "at": 1}}', "undecodable"),
    "null in a required field": (
        json.dumps(insert(price=None)).encode(),
        "undecodable",
    ),
    "wrong type": (json.dumps(insert(price=[1])).encode(), "undecodable"),
    "wrong scale": (
        b'{"op": "insert", "after": {"key": "a", "at": 1, "price": 1.005}}',
        "undecodable",
    ),
    "too many digits": (json.dumps(insert(price=10**8)).encode(), "undecodable"),
    "huge exponent": (
        b'{"op": "insert", "after": {"key": "a", "at": 1, "price": 1e999999}}',
        "undecodable",
    ),
    "time beyond 64 bits": (json.dumps(insert(at=2**70)).encode(), "undecodable"),
    "null event time": (json.dumps(insert(at=None)).encode(), "event time"),
    "NaN event time": (
        b'{"op": "insert", "after": {"key": "a", "at": NaN, "price": 1}}',
        "undecodable",
    ),
    "event time in year 30000": (json.dumps(insert(at=10**15)).encode(), "event time"),
    "delete of an unknown identity": (
        json.dumps({"op": "delete", "before": row()}).encode(),
        "unknown identity",
    ),
    "replace of an unknown identity": (
        json.dumps({"op": "replace", "before": row(), "after": row(price=6)}).encode(),
        "unknown identity",
    ),
    "oversized record": (json.dumps(insert(note="x" * 250_000)).encode(), "too large"),
    "oversized identity": (json.dumps(insert("k" * 600)).encode(), "too large"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_a_dead_letter_with_its_bytes_and_the_stream_goes_on(driver, name):
    value, reason = BAD[name]
    driver.send("trades", insert("good"))
    driver.send_raw("trades", value, b"its key")
    driver.send("trades", insert("better", price=7))
    driver.end()
    (letter,) = driver.dead_letters()
    assert (letter.reason, letter.value, letter.key) == (reason, value, b"its key")
    assert (letter.topic, letter.partition, letter.offset) == ("source.trades", 0, 1)
    assert letter.detail
    assert driver.table("sums")[0]["total"] == 12


def test_every_bad_record_of_one_batch_is_told_and_the_good_ones_count(driver):
    for number, (value, _) in enumerate(BAD.values()):
        driver.send_raw("trades", value)
        driver.send("trades", insert(f"good {number}"))
    driver.end()
    letters = driver.dead_letters()
    assert [letter.reason for letter in letters] == [reason for _, reason in BAD.values()]
    assert [letter.value for letter in letters] == [value for value, _ in BAD.values()]
    assert driver.table("sums")[0]["n"] == len(BAD)


def test_a_tombstone_is_a_dead_letter_of_a_native_source(driver):
    driver.cluster.send("source.trades", partition=0, key=b"k", value=None)
    driver.end()
    assert [letter.reason for letter in driver.dead_letters()] == ["undecodable"]


def test_a_tuple_older_than_keep_is_refused_and_so_is_its_revision(driver):
    driver.send("trades", [insert("old"), insert("new", at=100 * MINUTE)])
    driver.close_epoch()
    driver.send("trades", [insert("older", at=2 * MINUTE), {"op": "delete", "before": row("old")}])
    driver.send("trades", insert("in time", at=41 * MINUTE))
    driver.end()
    assert [letter.reason for letter in driver.dead_letters()] == ["older than keep"] * 2
    assert [r["key"] for r in driver.table("trades")] == ["in time", "new", "old"]


def test_a_repeated_insert_is_ignored_and_one_with_other_values_is_a_replace(driver):
    driver.send("trades", [insert(), insert(), insert(price=6), insert("b"), insert("b")])
    driver.close_epoch()
    driver.send("trades", insert(price=6))
    driver.close_epoch()
    assert driver.counts()["ingest.trades.0"]["duplicates"] == 3
    assert driver.counts()["ingest.trades.0"]["replaced"] == 1
    assert [r["op"] for r in driver.revisions("trades")] == ["insert", "insert"]


def test_an_original_that_disagrees_is_counted_and_the_arc_is_believed(driver):
    driver.send("trades", insert(price=5))
    driver.close_epoch()
    driver.revisions("trades")
    driver.send("trades", {"op": "replace", "before": row(price=4), "after": row(price=9)})
    driver.close_epoch()
    (told,) = driver.revisions("trades")
    assert (told["before"]["price"], told["after"]["price"]) == (Decimal(5), Decimal(9))
    assert driver.counts()["ingest.trades.0"]["disagreed"] == 1


def test_a_replace_that_changes_the_identity_is_a_delete_and_an_insert(driver):
    driver.send("trades", insert("a"))
    driver.close_epoch()
    driver.revisions("trades")
    driver.send("trades", {"op": "replace", "before": row("a"), "after": row("b")})
    driver.close_epoch()
    assert sorted(r["op"] for r in driver.revisions("trades")) == ["delete", "insert"]
    assert [r["key"] for r in driver.table("trades")] == ["b"]


def test_within_one_batch_records_of_an_identity_count_in_their_order(driver):
    driver.send(
        "trades",
        [
            insert("a"),
            {"op": "delete", "before": row("a")},
            {"op": "replace", "before": row("a"), "after": row("a", price=8)},
            {"op": "delete", "before": row("a")},
            insert("a", price=9),
            {"op": "replace", "before": row("a", price=9), "after": row("a", price=10)},
        ],
    )
    driver.close_epoch()
    (told,) = driver.revisions("trades")
    assert (told["op"], told["after"]["price"]) == ("insert", Decimal(10))
    assert [letter.offset for letter in driver.dead_letters()] == [2, 3]


class Registry:
    """Schemas by id."""

    def __init__(self, schemas):
        self.schemas = schemas

    def register(self, subject, schema):
        raise AssertionError

    def schema(self, schema_id):
        if schema_id not in self.schemas:
            raise UnknownSchemaError(schema_id, registry="the registry")
        return self.schemas[schema_id]


def writer(fields: list[object], *, extra: tuple[object, ...] = ()) -> dict[str, object]:
    side = {"type": "record", "name": "T", "fields": fields}
    return {
        "type": "record",
        "name": "R",
        "fields": [
            *extra,
            {"name": "after", "type": ["null", side]},
            {"name": "before", "type": ["null", "T"]},
            {"name": "op", "type": "string"},
        ],
    }


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 1}
AT = {"type": "long", "logicalType": "timestamp-millis"}
GOOD = [
    {"name": "price", "type": DECIMAL},
    {"name": "key", "type": "string"},
    {"name": "at", "type": AT},
    {"name": "size", "type": "float"},
]


def decode(schemas, values):
    source = compile_network(network()).topology.sources["trades"]
    return make(source, Registry(schemas)).decode(Batch(values, [None] * len(values)))


def test_a_writer_may_order_its_fields_otherwise_add_some_and_use_narrower_types():
    schema = writer(GOOD, extra=({"name": "seq", "type": "int"},))
    after = {"price": Decimal("1.5"), "key": "k", "at": 5, "size": 0.5}
    record = {"seq": 1, "after": after, "before": None, "op": "insert"}
    found = decode({7: schema}, [avro(schema, record, 7)])
    assert not found.refused
    told = found.frame.row(0, named=True)
    assert (told["after.price"], told["after.size"], told["after.note"]) == (150, 0.5, None)


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        ({"price": {"type": "double"}}, "needs decimal(9,2), found double"),
        ({"price": {**DECIMAL, "scale": 3}}, "found decimal(7,3)"),
        ({"at": "long"}, "needs timestamp-millis"),
        ({"key": None}, "missing field 'key'"),
    ],
)
def test_a_writer_schema_that_does_not_fit_makes_dead_letters_that_say_why(change, needed):
    fields = [
        {**field, "type": change.get(field["name"], field["type"])}
        for field in GOOD
        if change.get(field["name"], True) is not None
    ]
    found = decode({7: writer(fields)}, framing.frame([b"\x00"], 7))
    assert [refusal.reason for refusal in found.refused] == ["undecodable"]
    assert needed in found.refused[0].detail


def test_unframed_bytes_and_an_unknown_schema_id_are_refused_one_by_one():
    schema = writer(GOOD)
    record = {
        "after": {"price": Decimal("1.5"), "key": "k", "at": 5, "size": 0.5},
        "before": None,
        "op": "insert",
    }
    good = avro(schema, record, 7)
    found = decode({7: schema}, [good, b"{}", good[:9], b"\x00\x00\x00\x00\x09x", good])
    assert sorted(refusal.row for refusal in found.refused) == [1, 2, 3]
    assert found.frame["__row"].to_list() == [0, 4]
