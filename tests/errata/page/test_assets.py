"""What the page ships: libraries as they were pinned, and nothing from elsewhere."""

import hashlib
import re

from tests.errata.page.vendored import FOLDER, PACKAGES, SHA256

PAGE = FOLDER.parent


def test_the_libraries_are_those_that_are_pinned_with_their_licences() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir()}
    assert found == SHA256
    assert all(
        any(to.endswith(".LICENSE") for to in package.files.values()) for package in PACKAGES
    )


def test_nothing_is_loaded_from_elsewhere_and_nothing_parses_html() -> None:
    for path in [*PAGE.glob("*.js"), *PAGE.glob("*.html"), *PAGE.glob("*.css")]:
        text = path.read_text()
        foreign = set(re.findall(r"https?://[^\s\"'`]+", text))
        assert foreign <= {"http://www.w3.org/2000/svg"}, path.name
        parsers = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
        assert not re.search(parsers, text), path.name
