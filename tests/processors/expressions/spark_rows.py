"""The tuples that expressions are evaluated on here and in Spark: random ones and edges."""

import math
import random
import struct
import uuid

import numpy as np
import polars as pl

from errata.schemas.fields import FieldType, physical

FIELDS = {
    name: FieldType.parse(declared + "?")
    for name, declared in {
        "i": "int",
        "n": "int",
        "l": "long",
        "m": "long",
        "p": "decimal(18,2)",
        "q": "decimal(20,8)",
        "r": "decimal(38,10)",
        "t": "decimal(9,4)",
        "k": "decimal(38,0)",
        "j": "decimal(38,38)",
        "v": "decimal(5,5)",
        "f": "float",
        "g": "float",
        "d": "double",
        "e": "double",
        "b": "boolean",
        "c": "boolean",
        "s": "string",
        "z": "string",
        "w": "string",
        "x": "bytes",
        "u": "uuid",
        "at": "timestamp-millis",
        "mi": "timestamp-micros",
        "day": "date",
        "eve": "date",
    }.items()
}
"""`m` has the least long, which `l` has not; `w` has what casts may read; `n` is small."""

REQUIRED = {f"{name}_": kind.required for name, kind in FIELDS.items()}
"""The same once more, never null."""

ROWS = 300
_TIMES = [
    "2026-07-15 09:30:00",
    "2026-07-15T09:30:00.123456Z",
    "2026-7-5 9:3:1.5+02:00",
    "2026-07-15 09:30:00 -11:30",
    "1969-12-31 23:59:59.9999999",
    "2026-07-15 09:30:00.12 UTC",
    "2026-07-15 24:00:00",
    "2026-07-15 09:30Z",
    "2026-07-15 09",
    "2026-07-15T09:30:00+18:30",
    "2026-07-15T09:30:00.",
    "2026-07",
    " 2026 ",
    "+12026-01-31",
    "-0044-03-15",
    "2026-02-29",
    "2024-02-29 x",
    "2024-02-29Tx",
    "2024-02-29x",
    "20240229",
    "0000-01-01",
]
_NUMBERS = [
    "1",
    "-1.5",
    "+7",
    ".5",
    "5.",
    "1e3",
    "1E-400",
    "1e400",
    " 12 ",
    "1_0",
    "0x1",
    "1.5f",
    "NaN",
    "-Infinity",
    "inf",
    "99999999999",
    "1.005",
    "1e",
    "",
    "-",
    "16777217",
    "1 2",
]
_WORDS = ["true", "F", " yes ", "0", "on", "tRuE", "\t1\n", "T "]


def random_tuples(seed, height):
    """Return tuples with all fields of `FIELDS` and `REQUIRED`, always the same for a seed."""
    some = rows(f"some {seed}", height=height)
    known = rows(f"known {seed}", height=height, nulls=0)
    columns = some | {f"{name}_": values for name, values in known.items()}
    return pl.DataFrame(columns, schema=physical(FIELDS | REQUIRED))


def rows(seed=7, *, height=ROWS, nulls=0.12):
    """Return a column of values for each field, edges among them."""
    rng = random.Random(seed)

    def some(edges, draw):
        def value():
            chance = rng.random()
            return None if chance < nulls else rng.choice(edges) if chance < 0.5 else draw()

        return [value() for _ in range(height)]

    def whole(bits, low=1):
        top = 2 ** (bits - 1)
        edges = [0, 1, -1, 2, 7, 10, -25, 999, top - 1, low - top]
        return some(edges, lambda: rng.randrange(-top + 1, top) >> rng.randrange(bits - 1))

    def decimals(precision):
        top = 10**precision - 1
        edges = [0, 1, -1, 5, -15, 50, 25, 250, 10**4, top, -top]
        return some(edges, lambda: rng.randrange(-top, top) // 10 ** rng.randrange(precision))

    def single(value):
        return struct.unpack("f", struct.pack("f", value))[0]

    reals = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.005, 0.1, 1e10, -1e10, 123456.785]
    strange = [math.nan, math.inf, -math.inf]
    floats = [single(v) for v in (*reals, 1e-45, 16777217.0)] + strange + [3.4028234663852886e38]
    doubles = [*reals, *strange, 1e300, -1e-300, 5e-324, 1.7976931348623157e308, 1e23, 0.1 + 0.2]
    doubles += [9007199254740993.0, 2.0**63, -(2.0**63), 2.0**31, -(2.0**31)]
    texts = [
        "",
        "a",
        "b",
        "ab",
        "abc",
        "aab",
        "aXbX",
        "  ab  ",
        "\tab\n",
        "Ärger",
        "straße",
        "ΣΑΣ",
        "İi",
        "a😀b",
        "e\u0301E\u0301",
        "ΑΣ Σα",
        "ßﬁŉ",
        "\U00010400\U00010428",
        "👩\u200d👧🇩🇪",
        "\u00a0x\u3000 ",
        "a\0b",
        "a,b,c",
        ",",
        "a.b",
        "50%",
        "a_b",
        "a\\b",
        "line\nend\n",
        "cr\r\n",
        "x\u2028",
        "null",
        "A",
        "ABC",
    ]
    uuids = [str(uuid.UUID(int=v)) for v in (0, 2**128 - 1, 0x123E4567E89B12D3A456426614174000)]
    short = ["", "a", "b", "ab", "X", ",", "😀", "%", "aa", "abc", "e"]

    def text():
        return "".join(rng.choice("abXA ,é\u0301Σß😀") for _ in range(rng.randrange(8)))

    def micros():
        return rng.randrange(-(10**15), 4 * 10**15) // 10 ** rng.randrange(4)

    jumps = ["2026-03-08T02:30", "2026-11-01T01:30", "2026-10-04T02:15", "2026-04-05T01:45:00.0007"]
    rims = [
        "0001-01-01",
        "1582-10-10",
        "1883-11-18T12:03:58",
        "1900-03-01",
        "2024-02-29T23:59:59.999",
    ]
    rims += ["2100-02-28T12:00", "9999-12-31T23:59:59.999999"]
    times = np.array(jumps + rims, "M8[us]").astype(int).tolist()  # jumps show never, or twice
    times += [
        0,
        -1,
        1,
        -86_400_000_000,
        951_782_400_000_000,
        1_709_164_799_999_999,
        999,
        -999,
        60_000_000,
    ]
    dates = [0, -1, 1, 11_016, 19_782, -719_162, 2_932_896, 18_627, -141_422, -25_509, 47_540]
    columns = {
        "i": whole(32, 0),
        "n": some([0, 1, -1, 2, -3], lambda: rng.randrange(-8, 9)),
        "l": whole(64),
        "m": whole(64, 0),
        "p": decimals(18),
        "q": decimals(20),
        "r": decimals(38),
        "t": decimals(9),
        "k": decimals(38),
        "j": decimals(38),
        "v": decimals(5),
        "f": some(floats, lambda: single(rng.uniform(-1e3, 1e3))),
        "g": some(floats, lambda: single(rng.uniform(-10, 10))),
        "d": some(doubles, lambda: rng.uniform(-1e6, 1e6)),
        "e": some(doubles, lambda: round(rng.uniform(-10, 10), 3)),
        "b": some([True, False], lambda: True),
        "c": some([True, False], lambda: False),
        "s": some(texts, text),
        "z": some(short, lambda: rng.choice(short)),
        "w": some([*_TIMES, *_NUMBERS, *_WORDS], lambda: rng.choice([*_TIMES, *_NUMBERS])),
        "x": some([b"", b"\x00", b"a", b"\xff\x00", "é".encode()], lambda: rng.randbytes(3)),
        "u": some(uuids, lambda: rng.choice(uuids)),
        "mi": some(times, micros),
        "day": some(dates, lambda: rng.randrange(-40_000, 60_000)),
        "eve": some(dates, lambda: rng.randrange(-40_000, 60_000)),
    }
    columns["at"] = [None if v is None else v // 1000 for v in some(times, micros)]
    columns["p"][:4], columns["q"][:4] = [5, 15, 25, -35], [5, 10**8, -(10**8), 0]  # ties
    return columns
