"""Small files for the tests of copies."""

from collections.abc import Iterator
from unittest import mock

import pytest

from errata.sweepers import segments


@pytest.fixture(scope="module")
def small_blocks() -> Iterator[None]:
    """So that a file of the tests has several blocks."""
    with mock.patch.object(segments, "BLOCK_ROWS", 4):
        yield
