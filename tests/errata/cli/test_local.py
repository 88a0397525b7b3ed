"""`errata local`: files in, lines out."""

import gzip
import json
from pathlib import Path

import pytest

from tests.errata.conftest import Errata
from tests.errata.network_file import write_network

MINUTE = 60_000
FIGURE = [
    {"op": "insert", "after": {"key": key, "at": at * MINUTE, "symbol": "IBM", "price": price}}
    for key, at, price in [("a", 100, 30), ("b", 110, 25), ("c", 120, 25), ("d", 135, 37)]
]
LATER = {"op": "insert", "after": {"key": "e", "at": 400 * MINUTE, "symbol": "IBM", "price": 1}}
CORRECTED = {
    "op": "replace",
    "before": {"key": "c", "at": 120 * MINUTE, "symbol": "IBM", "price": 25},
    "after": {"key": "c", "at": 120 * MINUTE, "symbol": "IBM", "price": "22.00"},
}
CLOSE = {"epoch": True}


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return write_network(tmp_path)


def write(folder: Path, name: str, *lines: object) -> str:
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return name


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def totals(found: list[dict]) -> dict[int, float]:
    return {row["window_start"] // MINUTE: row["total"] for row in found}


@pytest.mark.parametrize("mode", ["upstream", "downstream"])
def test_figure_1_is_corrected_from_json_lines_in_both_modes(
    tmp_path: Path, tape: Path, errata: Errata, mode: str
) -> None:
    file = write(tmp_path, "f.jsonl", *FIGURE, CLOSE, LATER, CLOSE, CORRECTED)
    # in mode downstream counts has no results to fetch, which is refused: another network
    tape.write_text(tape.read_text().replace("plain = ", "unused = None and "))
    done = errata(
        "local", "tape.py", "--input", f"prices={file}", "--revisions", "sums", "--mode", mode
    )
    assert (done.status, done.err) == (0, "")
    revised = [line for line in lines(done.out) if line["epoch"] == 3]
    assert [line["op"] for line in revised] == ["replace", "replace"]
    assert totals([line["before"] for line in revised]) == {100: 80, 120: 62}
    assert totals([line["after"] for line in revised]) == {100: 77, 120: 59}


def test_a_table_comes_after_the_revisions_and_without_arc_if_only_one_arc_is_asked_for(
    tmp_path: Path, tape: Path, errata: Errata
) -> None:
    file = write(tmp_path, "f.jsonl", *FIGURE)
    asked = ["--table", "sums", "--revisions", "sums"]
    found = lines(errata("local", "tape.py", "--input", f"prices={file}", *asked).out)
    assert ["op" in line for line in found] == [True] * 3 + [False] * 3
    assert [line["after"] for line in found[:3]] == found[3:]


def test_lines_name_their_arc_if_several_are_asked_for(
    tmp_path: Path, tape: Path, errata: Errata
) -> None:
    file = write(tmp_path, "f.jsonl", *FIGURE)
    asked = ["--table", "sums", "--table", "counts"]
    found = lines(errata("local", "tape.py", "--input", f"prices={file}", *asked).out)
    assert [line["arc"] for line in found] == ["sums"] * 3 + ["counts"] * 3


@pytest.mark.parametrize("every", [1, 2, 100])
def test_the_final_table_does_not_depend_on_the_epochs(
    tmp_path: Path, tape: Path, errata: Errata, every: int
) -> None:
    marked: list[object] = []
    for number, line in enumerate([*FIGURE, LATER, CORRECTED], start=1):
        marked += [line, CLOSE] if number % every == 0 else [line]
    file = write(tmp_path, "f.jsonl", *marked)
    done = errata("local", "tape.py", "--input", f"prices={file}", "--table", "sums")
    assert totals(lines(done.out)) == {80: 30, 100: 77, 120: 59, 380: 1, 400: 1}


BOTH = """
from errata import Network

net = Network("both")
options = dict(
    identity=["key"], event_time="at", fields={"key": "string", "at": "timestamp-millis"},
)
first, second = net.source("first", **options), net.source("second", **options)
net.union("all", first, second)
"""


def test_the_nth_epochs_of_several_sources_are_one_epoch(tmp_path: Path, errata: Errata) -> None:
    (tmp_path / "both.py").write_text(BOTH)
    rows = [{"op": "insert", "after": {"key": key, "at": 5}} for key in "abcd"]
    one = write(tmp_path, "one.jsonl", rows[0], CLOSE, rows[2])
    two = write(tmp_path, "two.jsonl", rows[1], CLOSE, CLOSE, rows[3])
    asked = ["--input", f"first={one}", "--input", f"second={two}", "--revisions", "all"]
    done = errata("local", "both.py", *asked)
    assert (done.status, done.err) == (0, "")
    told = [(x["after"]["key"], x["epoch"]) for x in lines(done.out)]
    assert told == [("a", 1), ("b", 1), ("c", 2), ("d", 3)]


def test_several_files_of_one_source_are_epochs_one_after_the_other(
    tmp_path: Path, tape: Path, errata: Errata
) -> None:
    one = write(tmp_path, "one.jsonl", FIGURE[0], CLOSE, FIGURE[2])
    two = write(tmp_path, "two.jsonl", FIGURE[1], CLOSE, CLOSE, FIGURE[3])
    asked = ["--input", f"prices={one}", "--input", f"prices={two}", "--revisions", "plain"]
    done = errata("local", "tape.py", *asked)
    told = [(x["after"]["key"], x["epoch"]) for x in lines(done.out)]
    assert told == [("a", 1), ("c", 2), ("b", 3), ("d", 5)]


def test_a_csv_shows_its_corrections_where_an_identity_comes_again(
    tmp_path: Path, tape: Path, errata: Errata
) -> None:
    (tmp_path / "f.csv").write_text(
        "key,at,symbol,price\na,300000,IBM,30\nb,360000,IBM,25\na,300000,IBM,31\nc,1,IBM,1\n"
        "b,360000,IBM,26\nb,360000,IBM,27\n"
    )
    asked = ["--input", f"prices={tmp_path / 'f.csv'}", "--revisions", "plain"]
    told = lines(errata("local", "tape.py", *asked).out)
    found = {(x["epoch"], x["op"], x["after"]["key"], x["after"]["price"]) for x in told}
    assert found == {
        (1, "insert", "a", 30),
        (1, "insert", "b", 25),
        (2, "replace", "a", 31),
        (2, "insert", "c", 1),
        (2, "replace", "b", 26),
        (3, "replace", "b", 27),
    }


def test_columns_of_a_csv_tell_the_op_and_the_epoch(
    tmp_path: Path, tape: Path, errata: Errata
) -> None:
    (tmp_path / "f.csv").write_text(
        "day,what,key,at,symbol,price\nmon,I,a,300000,IBM,30\nmon,u,a,300000,IBM,31\n"
        "tue,U,a,300000,IBM,32\ntue,I,b,300000,IBM,5\nwed,D,a,300000,IBM,32\n"
    )
    asked = ["--input", f"prices={tmp_path / 'f.csv'}", "--revisions", "plain"]
    columns = ["--op-column", "what", "--epoch-column", "day"]
    done = errata("local", "tape.py", *asked, *columns)
    found = {(x["epoch"], x["op"], x.get("after", {}).get("price")) for x in lines(done.out)}
    assert found == {(1, "insert", 31), (2, "replace", 32), (2, "insert", 5), (3, "delete", None)}
    wrong = errata("local", "tape.py", *asked, "--epoch-column", "week")
    assert wrong.status == 1
    assert "has no column 'week' (--epoch-column); it has day, what, key" in wrong.err
    (tmp_path / "f.jsonl").write_text("{}")
    json = ["--input", f"prices={tmp_path / 'f.jsonl'}", "--epoch-column", "day"]
    assert "are for CSV" in errata("local", "tape.py", *json).err


def test_refused_records_are_counted_by_reason_on_standard_error(
    tmp_path: Path, tape: Path, errata: Errata
) -> None:
    unknown = {"op": "delete", "before": {"key": "z"}}
    file = write(tmp_path, "f.jsonl", FIGURE[0], "no revision", unknown, {"op": "insert"}, unknown)
    done = errata("local", "tape.py", "--input", f"prices={file}", "--table", "sums")
    assert done.status == 0
    told = sorted(done.err.splitlines())
    assert [line.partition(";")[0] for line in told] == [
        "errata: 2 refused, undecodable",
        "errata: 2 refused, unknown identity",
    ]
    assert "record 2 of prices" in told[0]
    assert "record 3 of prices" in told[1]


def test_a_filter_that_never_matches_is_told(tmp_path: Path, tape: Path, errata: Errata) -> None:
    tape.write_text(tape.read_text().replace('"price > 0"', "\"symbol = 'ibm'\""))
    file = write(tmp_path, "f.jsonl", *FIGURE)
    done = errata("local", "tape.py", "--input", f"prices={file}", "--table", "sums")
    assert done.status == 0
    assert done.err == (
        f"errata: filter 'plain' has passed none of {len(FIGURE)} revisions: symbol = 'ibm'\n"
    )


CSV = """seq,op,key,at,symbol,note,price,old_at,old_price
1,insert,a,1970-01-01T01:40:00Z,IBM,,30,,
2,insert,b,1970-01-01T01:50:00Z,"I""B,M",x,25.50,,
3,insert,c,1970-01-01T02:00:00Z,IBM,,25,,
4,replace,c,1970-01-01T02:00:00Z,IBM,,22,1970-01-01T02:00:00Z,25
5,delete,a,1970-01-01T01:40:00Z,IBM,,31,1970-01-01T01:40:00Z,30

6,insert,d,1970-01-01T02:00:00Z,IBM,,much,,
7,insert,e,1970-01-01T02:00:00Z,IBM,,,,
"""


@pytest.mark.parametrize("name", ["tape.csv", "tape.csv.gz"])
def test_csv_with_old_columns_is_read_as_revisions(
    tmp_path: Path, tape: Path, errata: Errata, name: str
) -> None:
    pack = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(CSV.encode()))
    done = errata("local", "tape.py", "--input", f"prices={name}", "--table", "prices")
    assert lines(done.out) == [
        {"key": "b", "at": 110 * MINUTE, "symbol": 'I"B,M', "price": 25.5},
        {"key": "c", "at": 120 * MINUTE, "symbol": "IBM", "price": 22},
    ]
    assert done.err.startswith("errata: 2 refused, undecodable; the first is record 6 of prices")


def test_csv_without_op_is_inserts(tmp_path: Path, tape: Path, errata: Errata) -> None:
    (tmp_path / "f.csv").write_text("key,at,symbol,price,more\na,6000000,IBM,30,x\n")
    done = errata("local", "tape.py", "--input", "prices=f.csv", "--table", "prices")
    assert lines(done.out) == [{"key": "a", "at": 6_000_000, "symbol": "IBM", "price": 30}]


def test_csv_with_before_and_after_columns_is_read_as_revisions(
    tmp_path: Path, tape: Path, errata: Errata
) -> None:
    (tmp_path / "f.csv").write_text(
        "op,before.key,after.key,after.at,after.symbol,after.price\n"
        "insert,,a,6000000,IBM,30\ninsert,,b,6000000,IBM,31\ndelete,a,,,,\nreplace,b,c,1,IBM,5\n"
    )
    done = errata("local", "tape.py", "--input", "prices=f.csv", "--table", "prices")
    assert [row["key"] for row in lines(done.out)] == ["c"]
    assert done.err == ""


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_dash_is_standard_input_in_either_form(
    tape: Path, errata_process: Errata, form: str
) -> None:
    given = json.dumps(FIGURE[0]) if form == "json" else "key,at,symbol,price\na,6000000,IBM,30\n"
    done = errata_process(
        "local", "tape.py", "--input", "prices=-", "--table", "prices", given=given
    )
    assert [row["key"] for row in lines(done.out)] == ["a"]
    assert done.status == 0


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("f.csv", b"a,b\n1,2\n", "no column is a field of source 'prices'; it has a, b"),
        ("f.csv", b"after.key\n1\n", "need a column op"),
        ("f.csv", b"key,at\n1,2,3\n", "found more fields"),
        ("f.csv", b"key,at\n\xff,2\n", "invalid utf-8"),
        ("f.csv.gz", gzip.compress(b"key,at\n1,2\n", mtime=0)[:-9], "can't be read"),
    ],
)
def test_a_damaged_input_is_one_clear_line(
    tmp_path: Path, tape: Path, errata: Errata, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    done = errata("local", "tape.py", "--input", f"prices={name}", "--table", "prices")
    assert (done.status, done.out) == (1, "")
    assert told in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--input", "prices=none.jsonl"], "input 'none.jsonl' can't be read: No such file"),
        (["--input", "trades=f.jsonl"], "has no source 'trades': it has prices"),
        (["--input", "prices=f.jsonl", "--table", "no"], "has no arc 'no': it has prices, sums"),
        (["--input", "prices=f.jsonl", "--mode", "fast"], "needs a mode of upstream, downstream"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    tmp_path: Path, tape: Path, errata: Errata, arguments: list[str], told: str
) -> None:
    write(tmp_path, "f.jsonl")
    done = errata("local", "tape.py", *arguments)
    assert (done.status, done.out) == (1, "")
    assert told in done.err


def test_an_empty_input_gives_nothing(tmp_path: Path, tape: Path, errata: Errata) -> None:
    done = errata(
        "local", "tape.py", "--input", f"prices={write(tmp_path, 'f.jsonl')}", "--table", "sums"
    )
    assert (done.status, done.out, done.err) == (0, "", "")


def test_a_function_that_raises_leaves_a_tuple_out_or_stops_it_all_as_asked_for(
    tmp_path: Path, tape: Path, errata: Errata
) -> None:
    function = 'python(lambda price: float(1 / (price - 30)), "double", "price")'
    inverse = f'prices.map("inverse", of={function})'
    tape.write_text("from errata import python\n" + tape.read_text() + inverse + "\n")
    file = write(tmp_path, "f.jsonl", *FIGURE)
    asked = ["local", "tape.py", "--input", f"prices={file}", "--table", "inverse", "--on-error"]
    done = errata(*asked, "dead-letter")
    assert (done.status, [row["key"] for row in lines(done.out)]) == (0, ["b", "c", "d"])
    assert "1 refused, function raised; the first is box 'inverse', epoch 1" in done.err
    stopped = errata(*asked, "stop")
    assert (stopped.status, stopped.out) == (1, "")
    assert "box 'inverse', epoch 1: function" in stopped.err
    assert "on_error needs to be dead-letter or stop, found 'wait'" in errata(*asked, "wait").err
