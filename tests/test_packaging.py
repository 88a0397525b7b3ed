"""The house: what is installed under our names is ours."""

from importlib.metadata import packages_distributions

import pytest

FOLDERS = ("errata", "processors", "schemas", "sweepers", "topics")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_other_distribution_brings_a_package_of_our_name(folder):
    """PyPI has distributions of these names; one that is installed would win over our folder."""
    assert set(packages_distributions().get(folder, ["errata"])) == {"errata"}
