"""Why a copy gives no answer, or does not take something in."""

from __future__ import annotations

from errata.schemas.errors import ErrataError


class HistoryGoneError(ErrataError):
    """The epoch asked for lies below the oldest one that the copy can still answer for."""

    def __init__(self, arc: str, *, epoch: int, floor: int) -> None:
        self.arc, self.epoch, self.floor = arc, epoch, floor
        super().__init__(
            f"arc {arc!r} was asked for as of epoch {epoch}, but versions superseded at or before "
            f"epoch {floor} are gone; ask as of {floor} or later"
        )


class NotYetCompleteError(ErrataError):
    """The epoch asked for is not complete in the copy yet; ask again later."""

    def __init__(self, arc: str, *, epoch: int, upto: int) -> None:
        self.arc, self.epoch, self.upto = arc, epoch, upto
        super().__init__(
            f"arc {arc!r} was asked for as of epoch {epoch}, but the copy is complete only up to "
            f"epoch {upto}; ask again when it has passed"
        )


class EpochOrderError(ErrataError):
    """Revisions were appended out of order: a fault of the caller."""

    def __init__(self, arc: str, *, found: tuple[int, int], after: int, upto: int) -> None:
        self.arc, self.found, self.after, self.upto = arc, found, after, upto
        super().__init__(
            f"copy of arc {arc!r} needs epochs above {after} and up to {upto}, found "
            f"{found[0]} to {found[1]}; leave out what was appended before"
        )
