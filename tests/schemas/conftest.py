"""All tests of the codec run by column and record by record."""

import pytest

from errata.schemas import few


@pytest.fixture(autouse=True, scope="module", params=[0, few.RECORDS], ids=["by column", "few"])
def most_records(request):
    """Set how many records of a batch count as few."""
    before, few.RECORDS = few.RECORDS, request.param
    yield
    few.RECORDS = before
