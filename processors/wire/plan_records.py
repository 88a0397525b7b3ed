"""The records of the plan topic: the plan, a switch, settling, ends and watermarks of sources.

Keys are text and values are JSON, so that people can read them. The topic is compacted: the newest
record of a key counts. ``docs/protocol.md#7-the-plan-topic`` gives every field. A reader ignores
keys that it does not know; the values are of version 1, there has been no other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from errata.schemas.errors import ErrataError

PLAN, SWITCH, SETTLE = b"plan", b"switch", b"settle"
_END, _WATERMARK = b"end.", b"watermark."

MOST = 2**31
"""Counts are smaller."""

MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading a foreign value may raise."""


class PlanRecordError(ErrataError):
    """A record of the plan topic can't be read."""


@dataclass(frozen=True)
class PlanRecord:
    """The deployed plan, under the key ``plan``.

    Args:
        version: Version of the plan; the first is 1.
        first_epoch: The first epoch that it processes.
        deployment: Id of the deployment, to which local state belongs.
        generations: By arc, the version that created its topic, if that is not the first.
        plan: Its description.
    """

    version: int
    first_epoch: int
    deployment: str
    generations: Mapping[str, int]
    plan: Mapping[str, Any]


@dataclass(frozen=True)
class SwitchRecord:
    """An announced version of the plan, under the key ``switch``.

    Args:
        version: Version of the plan; processes that run an older one stop.
    """

    version: int


@dataclass(frozen=True)
class SettleRecord:
    """That boxes have to emit what they keep back, under the key ``settle``.

    Args:
        number: How often that was asked for. A task that has settled less often does so.
    """

    number: int


@dataclass(frozen=True)
class EndRecord:
    """The declared end of a source, under the key ``end.<source>``.

    Args:
        source: Name of the source.
        offsets: By partition of its topic, the offset at which it ends.
    """

    source: str
    offsets: Mapping[int, int]


@dataclass(frozen=True)
class WatermarkRecord:
    """Where the watermark of a source is put back to, under the key ``watermark.<source>``.

    Args:
        source: Name of the source.
        time_ms: The watermark, ms.
        resent: Offset in the topic of dead letters: what was refused before it has been sent again.
    """

    source: str
    time_ms: int
    resent: int = 0


AnyPlanRecord = PlanRecord | SwitchRecord | SettleRecord | EndRecord | WatermarkRecord


def encode(record: AnyPlanRecord) -> tuple[bytes, bytes]:
    """Return the key and the value of a record of the plan topic."""
    if isinstance(record, EndRecord):
        return _END + record.source.encode(), _json(record.offsets)
    if isinstance(record, WatermarkRecord):
        content = {"time_ms": record.time_ms, "resent": record.resent}
        return _WATERMARK + record.source.encode(), _json(content)
    keys = {PlanRecord: PLAN, SwitchRecord: SWITCH, SettleRecord: SETTLE}
    return keys[type(record)], _json(vars(record))


def decode(key: bytes | None, value: bytes | None) -> AnyPlanRecord | None:
    """Decode a record; None if the key is unknown or the value is null.

    Raises:
        PlanRecordError: If the key is known, and the value can't be read.
    """
    if key is None or value is None:
        return None
    if key not in (PLAN, SWITCH, SETTLE) and not key.startswith((_END, _WATERMARK)):
        return None
    try:
        content = json.loads(value)
        if key == SWITCH:
            return SwitchRecord(_int(content["version"]))
        if key == SETTLE:
            return SettleRecord(_count(content["number"]))
        if key.startswith(_WATERMARK):
            source = key.removeprefix(_WATERMARK).decode()
            return WatermarkRecord(source, _int(content["time_ms"]), _int(content["resent"]))
        if key != PLAN:
            source = key.removeprefix(_END).decode()
            return EndRecord(source, {int(p): _int(offset) for p, offset in content.items()})
        return PlanRecord(
            version=_int(content["version"]),
            first_epoch=_int(content["first_epoch"]),
            deployment=str(content["deployment"]),
            generations={arc: _int(version) for arc, version in content["generations"].items()},
            plan=dict(content["plan"]),
        )
    except MALFORMED as error:
        raise unreadable(key, error) from error


def unreadable(key: bytes, error: Exception) -> PlanRecordError:
    """Return the error of a record that can't be read."""
    return PlanRecordError(
        f"record {key.decode(errors='replace')[:200]!r} of the plan topic can't be read: "
        f"{type(error).__name__}: {str(error)[:200]}; the newest readable one counts: run `errata "
        "deploy`, which writes it again before the log cleaner removes it, and check who may write "
        "to that topic"
    )


def _int(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} in place of an integer")
    return value


def _count(value: Any) -> int:
    if not 0 <= _int(value) < MOST:
        raise ValueError(f"{value} in place of a count")
    return value  # type: ignore[no-any-return]


def _json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
