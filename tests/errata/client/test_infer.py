"""What is proposed for a file is read by `errata local` without a refusal."""

import gzip
import json
from pathlib import Path

import pytest

from errata.client.infer import InferError, infer
from tests.errata.conftest import Errata

TIMES = {
    "1772462000": ("long", "timestamp_seconds(at)"),
    "1772462000123": ("timestamp-millis", "at"),
    "1772462000123456": ("timestamp-micros", "at"),
    "1772462000123456789": ("long", "timestamp_micros(at div 1000)"),
    "2026-03-02T10:00:00Z": ("timestamp-millis", "at"),
    "2026-03-02 10:00:00.123456+01:00": ("timestamp-micros", "at"),
    "2026-03-02": ("date", "at"),
}
VALUES = {
    "7": "long",
    "-3.25": "decimal(12,2)",
    "1e-7": "double",
    "true": "boolean",
    "9f0a3c1e-0000-4000-8000-0123456789ab": "uuid",
    "IBM": "string",
    "007": "decimal(12,0)",
    "": "string?",
}


def written(folder: Path, *lines: str, name: str = "trades.csv") -> str:
    (folder / name).write_text("\n".join(lines) + "\n")
    return str(folder / name)


@pytest.mark.parametrize(("text", "wanted"), TIMES.items(), ids=list(TIMES))
def test_the_unit_of_a_time_is_found(
    tmp_path: Path, errata: Errata, text: str, wanted: tuple[str, str]
) -> None:
    file = written(tmp_path, "key,at", f"a,{text}", f"b,{text}")
    found = infer(file)
    assert (found.fields["at"], found.event_time, found.identity) == (*wanted, ["key"])
    check(errata, tmp_path, file, rows=2)


@pytest.mark.parametrize(("text", "kind"), VALUES.items(), ids=list(VALUES.values()))
def test_the_type_of_a_value_is_found(tmp_path: Path, errata: Errata, text: str, kind: str) -> None:
    file = written(
        tmp_path, "id,at,x", f"1,2026-03-02T10:00:00Z,{text}", f"2,2026-03-02T10:00:00Z,{text}"
    )
    assert infer(file).fields["x"] == kind
    check(errata, tmp_path, file, rows=2)


def check(
    errata: Errata, folder: Path, file: str, *, rows: int, options: tuple[str, ...] = ()
) -> None:
    """Run what is proposed over the file: every row is taken in."""
    proposed = errata("infer", file)
    assert proposed.status == 0, proposed.err
    (folder / "network.py").write_text(proposed.out)
    done = errata("local", "network.py", "--input", f"trades={file}", "--table", "trades", *options)
    assert (done.status, done.err) == (0, "")
    assert len(done.out.splitlines()) == rows


def test_some_rows_without_a_value_make_it_optional_but_not_the_identity(tmp_path: Path) -> None:
    found = infer(
        written(tmp_path, "id,at,x", "1,2026-03-02T10:00:00Z,5", "2,2026-03-02T10:00:00Z,")
    )
    assert found.fields == {"id": "long", "at": "timestamp-millis", "x": "long?"}


def test_an_identity_that_comes_again_is_told_as_corrections(
    tmp_path: Path, errata: Errata
) -> None:
    rows = ["trade_id,executed,px", "1,1772462000,5", "2,1772462001,6", "1,1772462002,7"]
    found = infer(written(tmp_path, *rows))
    assert (found.identity, found.event_time) == (["trade_id"], "timestamp_seconds(executed)")
    assert "trade_id comes more than once: later rows of it are its corrections" in found.notes
    check(errata, tmp_path, str(tmp_path / "trades.csv"), rows=2)


def test_two_fields_may_be_the_identity(tmp_path: Path) -> None:
    rows = ["venue,day,px", "X,2026-03-02,5", "X,2026-03-03,5", "Y,2026-03-02,5"]
    found = infer(written(tmp_path, *rows))
    assert (found.identity, found.event_time) == (["venue", "day"], "day")


def test_revisions_are_known_by_their_op(tmp_path: Path, errata: Errata) -> None:
    rows = ["action,id,at,n,old_n", "I,1,2026-03-02T10:00:00Z,5,", "U,1,2026-03-02T10:00:00Z,6,5"]
    file = written(tmp_path, *rows)
    found = infer(file)
    assert (list(found.fields), found.op_column) == (["id", "at", "n"], "action")
    check(errata, tmp_path, file, rows=1, options=("--op-column", "action"))
    after = {"id": "a", "at": "2026-03-02T10:00:00Z", "n": 1.5, "ok": True}
    gone = {"op": "delete", "before": {"id": "b", "at": "2026-03-02T10:00:00Z"}}
    lines = [
        json.dumps({"op": "insert", "after": after}),
        '{"epoch": true}',
        "no",
        json.dumps(gone),
    ]
    packed = tmp_path / "trades.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    found = infer(str(packed))
    assert found.fields == {
        "id": "string", "at": "timestamp-millis", "n": "decimal(12,1)?", "ok": "boolean?",
    }  # fmt: skip


def test_plain_objects_are_rows(tmp_path: Path) -> None:
    found = infer(written(tmp_path, '{"id": 1, "ts": 1772462000123, "s": "x"}', name="t.jsonl"))
    assert found.fields == {"id": "long", "ts": "timestamp-millis", "s": "string"}
    assert (found.name, found.event_time) == ("t", "ts")


def test_what_can_not_be_chosen_is_told(tmp_path: Path, errata: Errata) -> None:
    done = errata("infer", written(tmp_path, "a,b c", "x,1", "x,1"))
    assert done.status == 0
    assert "no field looks like a time" in done.out
    assert "no field, and no two fields, tell all rows apart" in done.out
    assert "left out, their names are no names of fields: 'b c'" in done.out.replace('"', "'")
    assert "look at the notes" in done.err
    for content in ("", "\n"):
        (tmp_path / "empty.csv").write_text(content)
        with pytest.raises(InferError, match="has no rows with fields"):
            infer(str(tmp_path / "empty.csv"))
    assert errata("infer", "none.csv").status == 1
