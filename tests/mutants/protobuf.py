"""Bugs in how messages of Protobuf become columns."""

from tests.mutants.mutant import Mutant

FORMAT = "processors/envelopes/protobuf_format.py"
TESTS = "tests/processors/envelopes/test_protobuf_format.py"
SCHEMA = "processors/envelopes/protobuf_schema.py"

PROTOBUF = [
    Mutant(
        "an absent field of a message has its default",
        FORMAT,
        "values, bad = values.zip_with(present, values.clear(1)), bad & present",
        "values, bad = values, bad & present",
        tests=TESTS,
    ),
    Mutant(
        "an absent side of a revision has empty texts",
        FORMAT,
        "*(part.zip_with(present, part.clear(1)) for part in parts)",
        "*(part.zip_with(present | ~present, part.clear(1)) for part in parts)",
        tests=TESTS,
    ),
    Mutant(
        "a record may be read as two messages",
        FORMAT,
        "left[rows] = False",
        "left[rows] = len(prefix) == 1",
        tests=TESTS,
    ),
    Mutant(
        "a number that its enum lacks is null",
        FORMAT,
        "return texts, texts.is_null()",
        "return texts, texts.is_null() & texts.is_not_null()",
        tests=TESTS,
    ),
    Mutant(
        "instants before 1970 are rounded up",
        FORMAT,
        "return seconds * 1_000_000 + nanos // 1000, ~valid",
        "return seconds * 1_000_000 + nanos // 1000 + (seconds < 0), ~valid",
        tests=TESTS,
    ),
    Mutant(
        "a decimal's own scale is ignored",
        FORMAT,
        "numbers = rescale(numbers, scales, kind)",
        "numbers = rescale(numbers, scales * 0 + kind.scale, kind)",
        tests=TESTS,
    ),
    Mutant(
        "entries of maps count as messages",
        SCHEMA,
        "yield from (each for each in pending if not each[1].GetOptions().map_entry)",
        "yield from pending",
        tests=TESTS,
    ),
    Mutant(
        "an import may leave its folder",
        SCHEMA,
        'if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:',
        "if PurePosixPath(name).is_absolute():",
        tests=TESTS,
    ),
    Mutant(
        "an empty text that stands for a date is a fault",
        "processors/envelopes/avro_format.py",
        'original = original.replace("", None)',
        'original = original.replace(" ", None)',
        tests=TESTS,
    ),
    Mutant(
        "what imports import is not asked for",
        "topics/registry_server.py",
        "pending += version.schema.references or ()",
        "pending += ()",
        tests="tests/topics/test_registry_server.py",
    ),
]
