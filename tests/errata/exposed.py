"""A strict reader of Prometheus' text format, written from its description."""

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_LINE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_KINDS = {"counter", "gauge", "histogram"}

Labels = tuple[tuple[str, str], ...]


def exposed(text: str) -> dict[tuple[str, Labels], float]:
    """Return the value by name and labels of every line; the text must keep every rule.

    A metric's lines stand together behind its HELP and its TYPE, which come once; no line comes
    twice; labels come by name; counters end in ``_total`` and are not negative; buckets add up.
    """
    assert text.endswith("\n")
    found: dict[tuple[str, Labels], float] = {}
    seen: set[str] = set()
    name = kind = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, about = line.split(" ", 3)
            assert re.fullmatch(_NAME, name)
            assert about.strip()
            assert name not in seen, f"{name} comes twice"
            seen.add(name)
            kind = ""
        elif line.startswith("# TYPE "):
            _, _, of, kind = line.split(" ")
            assert (of, kind in _KINDS) == (name, True), line
            assert (kind == "counter") == name.endswith("_total"), line
        else:
            told = _LINE.fullmatch(line)
            assert told, line
            assert kind, f"before its TYPE: {line}"
            suffix = told[1].removeprefix(name)
            assert told[1].startswith(name), f"not a line of {name}: {line}"
            assert suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",)), line
            key = told[1], labels(told[2])
            assert key not in found, f"twice: {line}"
            found[key] = float(told[3])
            assert kind == "gauge" or found[key] >= 0, line
    for (of, which), count in found.items():
        if of.endswith("_bucket"):
            bare = of.removesuffix("_bucket")
            plain = tuple(pair for pair in which if pair[0] != "le")
            assert count <= found[f"{bare}_count", plain]
            if ("le", "+Inf") in which:
                assert count == found[f"{bare}_count", plain]
    return found


def labels(text: str | None) -> Labels:
    found, rest = [], text or ""
    while rest:
        told = _LABEL.match(rest)
        assert told, text
        found.append((told[1], re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), told[2])))
        rest = rest[told.end() :]
    names = [name for name, _ in found]
    assert names == sorted(set(names)), text
    return tuple(found)
