"""Takes the pictures of docs/page.md from the demo, in a real browser: `make screenshots`."""

import re
import shutil
import sys
from pathlib import Path
from time import monotonic, sleep

from playwright.sync_api import Page, sync_playwright

from errata.demo.run import Stage, stage
from errata.topics.broker import is_free

OUT = Path(__file__).parents[3] / "docs" / "img"
SIZE = {"width": 1280, "height": 760}
PORT = 9471
START_S, PLAY_S = 60.0, 40.0


def taken(page: Page, name: str) -> None:
    page.mouse.move(0, 0)
    page.wait_for_timeout(700)
    page.screenshot(path=OUT / f"page_{name}.png")
    print(f"docs/img/page_{name}.png")


def shots(page: Page, on: Stage, url: str) -> None:
    """Take all of them while the tape plays, and after it."""
    page.goto(url)
    with on.ticker(seconds=PLAY_S) as playing:
        page.wait_for_timeout(12_000)
        taken(page, "network")
        page.goto(f"{url}#/corrections")
        while playing.poll() is None:
            on.supervisor.poll()
            sleep(0.2)
    on.end()
    page.locator("tbody tr").nth(6).wait_for()
    page.select_option("#of", "totals_upstream")
    taken(page, "corrections")
    row = page.locator("tbody tr").first
    reason = row.get_by_role("link", name=re.compile("^why")).get_attribute("href")
    row.get_by_role("link", name=re.compile("^product")).click()
    page.get_by_role("link", name="all windows of this group").click()
    page.locator(".chart canvas").wait_for()
    taken(page, "arc")
    page.goto(f"{url}{reason}")
    page.locator("article table").first.wait_for()
    taken(page, "why")


def main() -> int:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None or not is_free(PORT):
        print(f"needs Debian's package chromium, and port {PORT}", file=sys.stderr)
        return 1
    with stage(lambda line: None, page=PORT) as on, sync_playwright() as playwright:
        on.supervisor.start()
        until_s = monotonic() + START_S
        while (on.not_started() or is_free(PORT)) and monotonic() < until_s:
            on.watch.view.poll()
            sleep(0.2)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        shots(page, on, f"http://127.0.0.1:{PORT}/")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
