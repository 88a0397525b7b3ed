"""The page in a real browser: it shows what the network does, and nothing in a record harms it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, Playwright, expect, sync_playwright

from errata.topics.admin import create_topics
from errata.topics.broker import EmbeddedBroker
from errata.topics.settings import TopicSpec

pytestmark = [pytest.mark.browser, pytest.mark.kafka]

ROOT = Path(__file__).parents[3]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIMIT_S, LIMIT_MS = 60.0, 30_000
MINUTE = 60_000
HOSTILE = {
    "script": "<script>document.title = 'taken'</script>",
    "image": "<img src=x onerror=\"document.title = 'taken'\">",
    "bidi": "abc\u202etxt.exe\u202c",
    "control": "a\x1b[2Jb",
    "long": "x" * 60_000,
}
NETWORK = """
from errata import Network, tumbling

net = Network("shown")
prices = net.source(
    "prices", topic="shown-prices", format="json", keep="1d", identity=["id"], event_time="at",
    fields={"id": "string", "at": "timestamp-millis", "symbol": "string", "price": "decimal(9,2)"},
)
prices.aggregate(
    "minutes", by=["symbol"], window=tumbling("1m"), highest="max(price)", prices="count(*)",
    keep="1d",
)
"""


class Shown:
    """A network that runs with its page, and its producer."""

    def __init__(self, folder: Path, environ: dict[str, str], broker: EmbeddedBroker) -> None:
        (folder / "net.py").write_text(NETWORK)
        create_topics(broker.settings, [TopicSpec("shown-prices", 1)])
        self.folder, self.environ, self.log = folder, environ, folder / "up.log"
        self.producer = Producer(broker.settings)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "errata", "up", "net.py"],
                cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.wait_for(lambda: "ready: 2 tasks" in self.log.read_text())
        command = [sys.executable, "-m", "errata", "dashboard", "net.py"]
        self.page = subprocess.Popen(
            [*command, "--port", "0", "--allow-writes"],
            cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.page.stdout is not None
        self.url = self.page.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", self.url), self.log.read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        until_s = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < until_s, self.log.read_text()
            time.sleep(0.05)

    def send(self, *lines: dict[str, Any] | bytes) -> None:
        for line in lines:
            value = line if isinstance(line, bytes) else json.dumps(line).encode()
            self.producer.produce("shown-prices", value)
        assert self.producer.flush(30) == 0

    def tasks_process(self) -> int:
        """The process of the tasks: a child of `errata up`."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = path.read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if int(parent) == self.process.pid:
                return int(path.parent.name)
        raise AssertionError(self.log.read_text())

    def close(self) -> None:
        for process in (self.page, self.process):
            process.terminate()
            process.wait(30)
        assert self.page.stdout is not None
        self.page.stdout.close()


def price(key: str, minute: float, amount: float, symbol: str = "IBM") -> dict[str, Any]:
    return {"id": key, "at": int(minute * MINUTE), "symbol": symbol, "price": amount}


def insert(*row: Any) -> dict[str, Any]:
    return {"op": "insert", "after": price(*row)}


def replace(before: dict[str, Any], amount: float) -> dict[str, Any]:
    return {"op": "replace", "before": before, "after": before | {"price": amount}}


@pytest.fixture(scope="module")
def shown(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("shown")
    foreign = ("ERRATA_", "KAFKA_", "SCHEMA_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own |= {"PYTHONPATH": str(ROOT), "ERRATA_STATE": str(folder / "state")}
    running = Shown(folder, own | {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}, broker)
    yield running
    running.close()


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as found:
        yield found


@pytest.fixture(scope="module")
def chromium(playwright: Playwright) -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(
            f"no browser: install Debian's package chromium (looked for {', '.join(NAMES)})"
        )
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    browser = playwright.chromium.launch(executable_path=path, args=options)
    yield browser
    browser.close()


class Faults(list[str]):
    """What a browser complains about: errors, blocked content, dialogs."""


@pytest.fixture
def page(chromium: Any, shown: Shown) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(LIMIT_MS)
    expect.set_options(timeout=LIMIT_MS)
    found, faults = context.new_page(), Faults()
    found.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
    found.on(
        "request",
        lambda r: None if r.url.startswith((shown.url, "data:")) else faults.append(r.url),
    )
    yield found
    context.close()
    expected = [text for text in faults if "status of 404" in text]  # what a test asks for
    assert faults == expected


def test_a_correction_appears_and_its_chart_and_its_cause(shown: Shown, page: Page) -> None:
    page.goto(f"{shown.url}#/corrections")
    expect(page.locator("#state")).to_have_text(re.compile("nothing ingested yet|up to date"))
    first = price("c1", 100, 25)
    shown.send(insert("c1", 100, 25), insert("c2", 101, 30), insert("z", 110, 1))
    shown.wait_for(lambda: page.locator("#state").inner_text() == "up to date")
    time.sleep(0.5)  # an epoch of its own
    shown.send(replace(first, 27.5))
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("highest 25.00 → 27.50")
    expect(row).to_contain_text("symbol IBM, window_start 1970-01-01 01:40:00")
    expect(row).to_contain_text("9 m before")
    row.get_by_text("IBM").click()
    expect(page.get_by_role("heading", name="History of this tuple")).to_be_visible()
    page.get_by_role("link", name="all windows of this group").click()
    chart = page.locator(".chart")
    expect(chart).to_have_attribute("data-corrected", "1")
    expect(chart.locator("canvas")).to_be_visible()
    page.locator(".scroll").first.get_by_role("link", name="why").first.click()
    article = page.locator("article").first
    expect(article).to_contain_text("shown-prices, partition 0, offset 3")
    expect(article).to_contain_text("price 25.00 → 27.50")


def test_a_killed_task_is_seen_and_seen_to_recover(shown: Shown, page: Page) -> None:
    shown.send(insert("k0", 120, 1))
    page.goto(shown.url)
    expect(page.locator("#state")).to_have_text("up to date")
    node = page.get_by_role("button", name=re.compile("^prices: "))
    expect(node).to_be_visible()
    pid = shown.tasks_process()
    os.kill(pid, signal.SIGSTOP)  # dead, as far as anyone can tell
    stopped_s = time.monotonic()
    shown.send(insert("k1", 121, 1))
    expect(page.locator("ul.told li").first).to_contain_text("ingest.prices.0")
    print(f"seen after {time.monotonic() - stopped_s:.1f} s")
    expect(node).to_have_class(re.compile("behind|wrong"))
    os.kill(pid, signal.SIGKILL)
    expect(page.locator("ul.told li")).to_have_count(0)
    expect(node).not_to_have_class(re.compile("behind|wrong"))
    table = page.locator("table", has_text="ingest.prices.0")
    expect(table.get_by_role("row", name=re.compile("ingest.prices.0"))).to_contain_text("2")
    expect(page.locator("#state")).to_have_text("up to date")


def test_hostile_values_are_shown_and_do_no_harm(shown: Shown, page: Page) -> None:
    page.goto(f"{shown.url}#/corrections")
    expect(page.locator("#state")).not_to_have_text("connecting")
    rows = {name: price(f"h-{name}", 200, 5, text) for name, text in HOSTILE.items()}
    shown.send(*({"op": "insert", "after": row} for row in rows.values()), insert("z2", 300, 1))
    shown.wait_for(lambda: page.locator("#state").inner_text() == "up to date")
    time.sleep(0.5)
    shown.send(*(replace(row, 6) for row in rows.values()))
    body = page.locator("tbody")
    expect(body).to_contain_text(HOSTILE["script"])
    expect(body).to_contain_text(HOSTILE["image"])
    expect(body).to_contain_text("abc\\u202etxt.exe\\u202c")
    expect(body).to_contain_text("a\\x1b[2Jb")
    expect(body).to_contain_text("... (59800 more characters)")
    row = page.locator("tbody tr", has_text="<script>")
    row.get_by_role("link", name=re.compile("^why")).click()
    expect(page.locator("article").first).to_contain_text("price 5.00 → 6.00")
    page.goto(f"{shown.url}#/arc/minutes")
    expect(page.locator("tbody").last).to_contain_text(HOSTILE["image"])
    shown.send(
        b"y" * 900_000, b"<script>document.title = 'taken'</script>\xff", HOSTILE["script"].encode()
    )
    page.goto(f"{shown.url}#/letters")
    expect(page.locator("tbody")).to_contain_text(HOSTILE["script"])
    page.locator("tbody tr").first.get_by_role("link").click()
    expect(page.locator("pre").first).to_be_visible()
    page.goto(f"{shown.url}#/letters?text=yyyyy")
    page.locator("tbody tr").first.get_by_role("link").click()
    expect(page.locator("#main")).to_contain_text("900,000 bytes")
    assert "taken" not in page.title()
    assert page.locator("main script, main img").count() == 0


def test_a_dead_letter_is_edited_and_sent_again(shown: Shown, page: Page) -> None:
    good = json.dumps(insert("mended", 400, 9))
    shown.send(
        good.replace("400", "four").encode(), good.replace('"price": 9', '"price": "x"').encode()
    )
    page.goto(f"{shown.url}#/letters?text=mended")
    link = page.locator("tbody tr", has_text='"price": "x"').get_by_role("link")
    link.click()
    page.locator("#edited").fill(good)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status").last).to_contain_text("sent, edited; its offset is")
    page.goto(f"{shown.url}#/arc/prices?key=id%3Dmended")
    expect(page.locator("tbody").last).to_contain_text("9.00")


def test_an_arc_is_shown_as_of_an_earlier_time(shown: Shown, page: Page) -> None:
    shown.send(insert("old", 500, 1), insert("z3", 600, 1))
    page.goto(f"{shown.url}#/arc/prices?key=id%3Dold")
    table = page.locator("section[aria-label=Content]")

    def content() -> str:
        page.reload()
        expect(table.locator("caption")).to_be_visible()
        return table.inner_text()

    shown.wait_for(lambda: "1.00" in content())
    told = table.locator("caption").inner_text()
    epoch = re.search(r"after epoch (\d+)", told)
    assert epoch is not None
    time.sleep(0.5)
    shown.send(replace(price("old", 500, 1), 2))
    shown.wait_for(lambda: "2.00" in content())
    page.get_by_label("as of (UTC time or epoch)").fill(epoch[1])
    page.get_by_role("button", name="Show").click()
    expect(table).to_contain_text(f"after epoch {epoch[1]}")
    expect(table).to_contain_text("1.00")
    page.goto(f"{shown.url}#/arc/none")
    expect(page.locator("#main")).to_contain_text("has no arc none")


def test_it_can_be_used_with_the_keyboard_and_follows_the_system_s_colours(
    shown: Shown, page: Page
) -> None:
    page.goto(shown.url)
    node = page.get_by_role("button", name=re.compile("^minutes: "))
    expect(node).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    node.focus()
    page.keyboard.press("Enter")
    expect(page.locator("caption").last).to_contain_text("of minutes")
    grounds = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 24, 28)"]
    controls = "[...document.querySelectorAll('button, a, input, select, [role=button]')]"
    named = "e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length"
    assert page.evaluate(f"{controls}.every((e) => {named})")
