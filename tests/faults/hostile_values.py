"""Hostile pieces of records: values, bytes and wire forms that readers get wrong most easily."""

import random
from collections.abc import Sequence

HUGE_NUMBERS = [
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"1" * 5000,
    b"-" + b"9" * 309,
    b"0." + b"3" * 5000,
    b"1e999999999999999999999",
]
NUMBERS = [
    *HUGE_NUMBERS,
    b"0",
    b"-0",
    b"-0.0",
    b"-1",
    b"1.0",
    b"1.5",
    b"1e3",
    b"1E+2",
    b"01",
    b"+1",
    b".5",
    b"1.",
    b"0x10",
    b"1_000",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"2147483647",
    b"2147483648",
    b"-2147483649",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"3.4028235e38",
    b"3.5e38",
    b"1.7976931348623157e308",
    b"9999999.99",
    b"99999999.99",
    b"0.001",
    b"-0.00",
    b"100e-2",
    b"1e-2",
    b"221845392000000",
    b"253402300800000",
    b"-30610224000001",
    b"-62135596800001",
    b"9223372036854775",
]
TEXTS = [
    b"",
    b" ",
    b"null",
    b"true",
    b"NaN",
    b"5",
    b"\xef\xbb\xbfa",
    b"a\xef\xbb\xbf",
    b"\0",
    b"a\0b",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe2\x82",
    "\U0001f600\u202e\u0000x".encode(),
    "e\u0301\u00e9".encode(),
    b"x" * 499,
    b"x" * 500,
    b"x" * 501,
    "\u00e9".encode() * 300,
    b"1970-01-01",
    b"1970-02-30",
    b"1970-01-01T00:00:00Z",
    b"1970-01-01 24:00",
    b"0000-01-01T00:00:00Z",
    b"9999-12-31T23:59:59.999999999+23:59",
    b"1970-01-01T00:00:00+99:99",
    b"292278994-08-17T07:12:55.807Z",
    b"12345678-1234-5678-1234-567812345678",
    b"12345678123456781234567812345678",
    b"{12345678-1234-5678-1234-567812345678}",
    b"QUJD",
    b"QUI=",
    b"QUI",
    b"QU JD",
    b"QUJD\n",
    b"%%%%",
    "\u0661\u0662\u0663".encode(),
    b"1\xc2\xa02",
    b"1e5",
    b"+5",
    b"007",
]
JSON_PIECES = [
    *NUMBERS,
    b"null",
    b"true",
    b"false",
    b"[]",
    b"{}",
    b"[5]",
    b'{"a": 1}',
    b"[" * 99 + b"]" * 99,
    b"[" * 101 + b"]" * 101,
    b"[" * 5_000 + b"]" * 5_000,
    b'{"a":' * 200 + b"1" + b"}" * 200,
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\ud83d\\ude00"',
    b'"\\u0000"',
    b'"\\u0031"',
    b'"\\/"',
    b'"1970\\/01"',
    b'"\\x41"',
    b'"\x01"',
    b'"a',
    b'"\\"',
    b"nul",
    b"tru",
    b"undefined",
    b"/* */ 5",
    b"'a'",
    b'"5" ',
    b" 5",
    b"\xef\xbb\xbf5",
    b'""',
    b'"\xff"',
]
TIMES_MS = [
    0,
    -1,
    1,
    -62_135_596_800_000,
    -62_135_596_800_001,
    -30_610_224_000_000,
    -30_610_224_000_001,
    221_845_392_000_000,
    221_845_392_000_001,
    253_402_300_799_999,
    9_214_646_400_000_000_000,
    2**63 - 1,
    -(2**63),
]
VARINTS = [
    b"",
    b"\x80",
    b"\x80" * 9 + b"\x01",
    b"\x80" * 9 + b"\x02",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x7f",
    b"\xff" * 10 + b"\x01",
    b"\x80" * 20 + b"\x00",
    b"\x81\x00",
    b"\x80\x80\x80\x80\x00",
]
"""Too long, unfinished, of more than 64 bits, or not the shortest."""
LENGTHS = [-1, -2, -(2**31), -(2**62), -(2**63), 2**31, 2**62, 2**63 - 1, 10_000_000, 1, 0]
"""Lengths of texts and counts of blocks."""


def zigzag(number: int) -> bytes:
    """Return a long as Avro writes it."""
    rest, out = (number << 1) ^ (number >> 63), bytearray()
    rest &= 2**64 - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def sized(content: bytes) -> bytes:
    """Return bytes or a text as Avro writes it."""
    return zigzag(len(content)) + content


def any_bytes(dice: random.Random) -> bytes:
    """Return bytes that are no record of anything."""
    return dice.choice(
        [
            b"",
            b"\0",
            b"\0\0\0\0",
            b"\0\0\0\0\1",
            b"null",
            b"{}",
            b"[]",
            b'""',
            b"\xef\xbb\xbf{}",
            b"\xff\xfe{\0}\0",
            dice.randbytes(dice.randrange(1, 60)),
            b"\0" + dice.randbytes(dice.randrange(1, 60)),
            b"\0\0\0\0\1" + dice.randbytes(dice.randrange(60)),
        ]
    )


def damaged(content: bytes, dice: random.Random) -> bytes:
    """Return bytes with one kind of damage: other bits, a cut, more behind, a piece twice."""
    if not content:
        return dice.randbytes(3)
    changed, at = bytearray(content), dice.randrange(len(content))
    what = dice.randrange(8)
    if what == 0:
        for _ in range(dice.choice([1, 1, 1, 2, 8, 64])):
            changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    elif what == 1:
        del changed[at:]
    elif what == 2:
        changed += dice.choice([b"\0", b"x", b" ", b"\n", b"\r\n", content, dice.randbytes(9)])
    elif what == 3:
        changed[at:at] = changed[at : at + dice.randrange(1, 20)]
    elif what == 4:
        del changed[at : at + dice.randrange(1, 6)]
    elif what == 5:
        changed[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x5C, 0x7B, 0x2C, 0x0A])
    elif what == 6:
        changed[at:at] = dice.choice([*VARINTS, *map(zigzag, LENGTHS), b"\xef\xbb\xbf"])
    else:
        changed[:at] = b""
    return bytes(changed)


def some(dice: random.Random, choices: Sequence[bytes]) -> bytes:
    """Return one of some pieces, or damage of one."""
    piece = dice.choice(choices)
    return damaged(piece, dice) if dice.random() < 0.1 else piece
