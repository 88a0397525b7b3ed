"""What is installed under our name is ours, and nothing else is."""

from importlib.metadata import packages_distributions
from pathlib import Path

import errata

ROOT = Path(__file__).parents[1]
DISTRIBUTION = "errata-streams"
FOLDERS = ("processors", "schemas", "spark_jobs", "sweepers", "topics")


def test_our_import_names_are_installed_and_no_other_distribution_brings_it():
    """PyPI has a distribution of this name; one that is installed would win over our folder."""
    ours = {
        name for name, brought in packages_distributions().items() if "errata-streams" in brought
    }
    named = {"errata", "pyspark_errata"}  # the second is how Spark finds its source
    assert ours <= named | {name for name in ours if name.startswith("__editable__")}
    assert set(packages_distributions().get("errata", ["errata-streams"])) == {"errata-streams"}


def test_each_top_level_folder_is_in_the_package_by_a_relative_link():
    for folder in FOLDERS:
        link = ROOT / "errata" / folder
        assert link.is_symlink()
        assert link.readlink() == Path("..") / folder


def test_the_package_tells_its_version():
    assert errata.__version__.count(".") == 2
