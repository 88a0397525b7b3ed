"""The interface of formats to envelopes: readers of tuples and of revisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from errata.processors.envelopes.checks import Decoded

Tuples = Callable[[Sequence[bytes]], Decoded]
"""Reads tuples: one column per field, null where it is missing."""

Revisions = Callable[[Sequence[bytes]], Decoded]
"""Reads revisions: op as a code (null if unknown), both sides, and which sides are present."""
