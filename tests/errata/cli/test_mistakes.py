"""Fifty mistakes and their answers: one message each, that says where, what was found, what to do.

In a network's file the answer names the file and the line.
"""

from pathlib import Path

import pytest

from tests.errata.conftest import Errata

BASE = """from errata import Network, hopping, python, sliding, tumbling
net = Network("m")
t = net.source(
    "t", topic="t", format="json", identity=["k"], event_time="at", keep="1d",
    fields={"k": "string", "at": "timestamp-millis", "px": "decimal(12,4)", "n": "long?"},
)
day = tumbling("1d")
"""
LINE = BASE.count("\n") + 1
SOURCE = (
    'net.source("u", fields={{"k": "string", "at": "{at}"}}, identity=["k"], event_time="at"{more})'
)


def source(more: str = "", at: str = "timestamp-millis") -> str:
    return SOURCE.format(more=f", {more}" if more else "", at=at)


IN_A_FILE = {
    source('latness="5m"'): "unexpected keyword argument 'latness'; write lateness=",
    source(
        at="str"
    ): "needs a type for field 'at'; found field type 'str': needs one of string, int",
    source(at="string"): "found string; convert it with to_timestamp(x)",
    source(at="long"): "found long; convert it with timestamp_millis(x), timestamp_seconds(x)",
    source(
        'envelope="cdc"'
    ): "needs an envelope of append, upsert, debezium, native, arc; found 'cdc'",
    source(
        'format="xml"'
    ): "needs a format of avro, protobuf, json for envelope 'native'; found 'xml'",
    source(
        'partition_by=["zz"]'
    ): "needs partition_by among the fields; found unknown 'zz'; use some of",
    source('topic="m.u"'): "needs a topic that is not the network's own; found 'm.u'; name another",
    source('keep="-1d"'): "found keep is '-1d': needs a whole number and a unit",
    't.where("t", "px > 1")': "needs a unique name; found another box of that name at net.py:3",
    't.where("a b", "px > 1")': "needs a name of letters, digits and _; found 'a b'; rename it",
    't.where("b", "px >")': "needs an SQL expression, found no operand after '>'",
    't.where("b", "(px > 1")': "needs an SQL expression, found no ) after '1'",
    't.where("b", "px + 1")': "needs a predicate that is true or false; found 'px + 1' of type decimal",
    't.where("b", "k > 1")': "needs one common type for the operands of >, found string and int",
    't.where("b", "price > 1")': "needs a field of the arc, found 'price'; the fields are at, k, n, px",
    't.where("b", "max(px) > 1")': "found the aggregate max; use it in .aggregate(...)",
    't.where("b", "px > 1", scope="a b")': "needs a scope name of letters, digits, _ and -; found 'a b'",
    't.where("b", "px > 1", place="flink")': "needs place='spark' or place='process'; found 'flink'",
    't.where("b", uper="px > 1")': "unexpected keyword argument 'uper'",
    't.map("b", x="upperr(k)")': "upperr, which is not supported; did you mean upper?",
    't.aggregate("b", by=["sym"], window=day, hi="max(px)")': "found unknown 'sym'; use some of k, at",
    't.aggregate("b", by=[], hi="max(px)")': "missing 1 required keyword-only argument: 'window'",
    't.aggregate("b", by=[], window="1m", hi="max(px)")': "found '1m'; write hopping(",
    't.aggregate("b", by=[], window=tumbling("1 day"), hi="max(px)")': "'1 day': needs a whole number",
    't.aggregate("b", by=[], window=hopping("1m", every="2m"), hi="max(px)")': "0 < every <= size",
    't.aggregate("b", by=[], window=day)': "needs at least one named result; found none; add one",
    't.aggregate("b", by=[], window=day, hi="maximum(px)")': "found maximum; did you mean max?",
    't.aggregate("b", by=[], window=day, hi="max(price)")': "needs a field of the arc, found 'price'",
    't.aggregate("b", by=[], window=day, hi="px")': "needs an aggregate function, found the field px",
    't.aggregate("b", by=[], window=day, hi="collect_list(px)")': "found collect_list, not supported",
    't.aggregate("b", by=[], window=day, hi="percentile(px)")': "needs 2 arguments of percentile, found 1",
    't.aggregate("b", by=[], window=day, mode="up", hi="max(px)")': "needs a mode of upstream, downstream",
    't.lookup("b", t, on="k", as_of="at")': "needs options that lookup has; found as_of=",
    't.join("b", t, on="k")': "has no attribute 'join'; it is a method of the network: net.join(...)",
    't.agregate("b", by=[])': "has no attribute 'agregate'; write .aggregate(...)",
    't.sink("x", envelope="cdc")': "needs an envelope of native, debezium, upsert for its sink; found",
    'net.sourc("x")': "has no attribute 'sourc'; write .source(...)",
    'raise ValueError("boom")': "ValueError: boom",
    "x = (1": "syntax error in net.py, line",
    "import nothing_of_the_kind": "No module named 'nothing_of_the_kind'",
}


@pytest.mark.parametrize(("code", "answer"), IN_A_FILE.items(), ids=list(IN_A_FILE))
def test_a_mistake_in_a_network_s_file_is_told_with_its_line(
    errata: Errata, tmp_path: Path, code: str, answer: str
) -> None:
    (tmp_path / "net.py").write_text(BASE + code + "\n")
    done = errata("explain", "net.py")
    assert (done.status, done.out) == (1, "")
    assert answer in done.err, done.err
    assert f"net.py, line {LINE}" in done.err or f"net.py:{LINE}" in done.err, done.err


GOOD = "k,at,px\na,2026-03-02T10:00:00Z,1\n"
FILES = {
    "good.csv": GOOD,
    "no_fields.csv": "x,y\n1,2\n",
    "refused.csv": "k,at,px\na,soon,1\nb,never,2\n",
    "digits.csv": "k,at,px\na,2026-03-02T10:00:00Z,1.123456\n",
    "seconds.csv": "k,at,px\na,1772462000,1\n",
    "misspelt.csv": "k,at,prx\na,2026-03-02T10:00:00Z,1\n",
    "misspelt.jsonl": '{"op": "insert", "after": {"k": "a", "at": 1772462000000, "px": 1, "nn": 5}}\n',
    "half.csv": "op,before.k,after.k\n",
}
TABLE = ("--table", "t")
ON_THE_COMMAND_LINE = {
    ("local", "nett.py", "--input", "t=good.csv"): (1, "can't read 'nett.py': No such file"),
    ("local", "net.py", "--input", "t=none.csv"): (
        1,
        "input 'none.csv' can't be read: No such file",
    ),
    ("local", "net.py", "--input", "s=good.csv"): (1, "has no source 's': it has t"),
    ("local", "net.py", "--input", "good.csv"): (2, "'good.csv' needs the form SOURCE=FILE"),
    ("local", "net.py"): (2, "needs --input, or --from and --until"),
    ("local", "net.py", "--input", "t=good.csv", "--table", "x"): (1, "has no arc 'x': it has t"),
    ("local", "net.py", "--input", "t=good.csv", "--tabel", "t"): (2, "--table"),
    ("local", "net.py", "--input", "t=good.csv"): (
        0,
        "nothing is printed: ask for an arc with --table",
    ),
    ("local", "net.py", "--input", "t=no_fields.csv", *TABLE): (
        1,
        "no column is a field of source 't'",
    ),
    ("local", "net.py", "--input", "t=refused.csv", *TABLE): (
        1,
        "nothing was taken in: every record",
    ),
    ("local", "net.py", "--input", "t=digits.csv", *TABLE): (
        1,
        '"1.123456", which has more digits',
    ),
    ("local", "net.py", "--input", "t=seconds.csv", *TABLE): (
        0,
        "are around 1970-01-21: are they seconds?",
    ),
    ("local", "net.py", "--input", "t=misspelt.csv", *TABLE): (1, "'px'"),
    ("local", "net.py", "--input", "t=half.csv", *TABLE): (0, ""),
    ("locall", "net.py"): (2, "No such command 'locall'. Did you mean 'local'?"),
    ("status", "net.py"): (
        1,
        "no Kafka cluster is configured: set KAFKA_BOOTSTRAP_SERVERS=HOST:PORT",
    ),
    ("explain", "net.py:nett"): (1, "has no network named 'nett'; it has net"),
    ("init", "."): (1, "would be overwritten; name another folder, or move it away"),
}


@pytest.mark.parametrize(
    ("words", "told"), ON_THE_COMMAND_LINE.items(), ids=list(map(" ".join, ON_THE_COMMAND_LINE))
)
def test_a_mistake_on_the_command_line_is_told_with_a_true_status(
    errata: Errata, tmp_path: Path, words: tuple[str, ...], told: tuple[int, str]
) -> None:
    (tmp_path / "net.py").write_text(BASE)
    (tmp_path / "network.py").write_text("")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    done = errata(*words)
    status, answer = told
    assert done.status == status, done.err
    assert answer in done.err, done.err


SETTINGS = {
    (
        "ERRATA_KAFKA__SECURITY_PROTOCOL",
        "SASL_SSL",
    ): "sasl.mechanism is not set, and its default GSSAPI",
    (
        "ERRATA_KAFKA__SASL_USERNAME",
        "me",
    ): "sasl.username has no effect with security.protocol=PLAINTEXT",
    ("ERRATA_KAFKA__NO_SUCH_KEY", "1"): "a Kafka setting is refused",
    ("ERRATA_EPOCHS__INTERVAL", "soon"): "epochs.interval",
    ("ERRATA_NONE__KEY", "1"): "none",
    ("ERRATA_HTTP__LISTEN", "9464"): "http.listen needs HOST:PORT, found '9464'",
}


@pytest.mark.parametrize(
    ("setting", "answer"), SETTINGS.items(), ids=[name for name, _ in SETTINGS]
)
def test_a_mistake_in_the_settings_is_told_with_its_key(
    errata: Errata,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: tuple[str, str],
    answer: str,
) -> None:
    (tmp_path / "net.py").write_text(BASE)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv(*setting)
    done = errata("status", "net.py")
    assert (done.status, done.out) == (1, "")
    assert answer in done.err.lower() or answer in done.err, done.err


def test_there_are_fifty() -> None:
    assert len(IN_A_FILE) + len(ON_THE_COMMAND_LINE) + len(SETTINGS) >= 50
