"""What the page answers, to whom, and what it refuses."""

import base64
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from errata.page.guard import COOKIE, HEADERS, OURS
from errata.testing import Driver
from tests.errata.cli.test_tail import figure
from tests.errata.page.conftest import Pages

WINDOW = {"key": ["symbol=IBM", "window=1970-01-01T01:40"]}


def refused(driver: Driver) -> None:
    driver.send("prices", ["<script>alert(1)</script>", b"\xff\x00"])
    driver.send("prices", {"op": "delete", "before": {"key": "none"}})
    driver.close_epoch()


def test_the_network_is_told_with_its_graph_and_what_arcs_hold(page: TestClient) -> None:
    told = page.get("/api/network").json()
    assert [node["name"] for node in told["nodes"]] == ["prices", "sums", "plain", "counts"]
    assert {"start": "prices", "end": "sums", "what": ""} in told["edges"]
    assert told["arcs"]["sums"]["identity"] == ["symbol", "window_start"]
    assert told["arcs"]["sums"]["closes"]
    assert told["arcs"]["prices"]["is_source"]
    assert told["tasks"] == {"ingest.prices": ["ingest.prices.0"], "prices": ["prices.0"]}
    assert told["allows_writes"] is False


def test_an_arc_is_a_table_now_and_as_of_an_epoch(driver: Driver, page: TestClient) -> None:
    figure(driver)
    now, before = (
        page.get("/arcs/sums", params=WINDOW | more).json() for more in ({}, {"as_of": 1})
    )
    assert [t["total"] for t in (*now["tuples"], *before["tuples"])] == [77, 80]
    assert (now["epoch"], now["at_ms"], now["count"], before["epoch"]) == (2, 100, 1, 1)
    whole = page.get("/arcs/sums", params={"limit": 1}).json()
    assert (whole["count"], len(whole["tuples"])) == (len(driver.table("sums")), 1)
    shown = page.get("/arcs/sums", params=WINDOW | {"values": "shown"}).json()
    assert shown["tuples"][0]["total"] == "77.00"
    assert shown["keys"] == [["symbol=IBM", "window_start=1970-01-01 01:40:00"]]


def test_an_arc_is_arrow_with_exact_types(driver: Driver, page: TestClient) -> None:
    figure(driver)
    answers = [
        page.get("/arcs/sums", params=WINDOW | {"format": "arrow"}),
        page.get(
            "/arcs/sums", params=WINDOW, headers={"accept": "application/vnd.apache.arrow.stream"}
        ),
    ]
    for answer in answers:
        table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
        assert table.schema.field("window_start").type == pa.timestamp("us", tz="UTC")
        assert table["total"].to_pylist() == [Decimal("77.00")]
        assert table.schema.metadata[b"epoch"] == b"2"


def test_a_history_has_the_revisions_that_are_in_the_topic(
    driver: Driver, page: TestClient
) -> None:
    figure(driver)
    told = page.get("/arcs/sums/history", params=WINDOW).json()
    assert [(r["op"], r["after"]["total"], r["epoch"]) for r in told["revisions"]] == [
        ("insert", 80, 1),
        ("replace", 77, 2),
    ]
    assert told["count"] == 2
    every = page.get("/arcs/sums/history").json()
    assert every["count"] > 2


def test_why_names_the_records_and_what_it_is_made_of(driver: Driver, page: TestClient) -> None:
    figure(driver)
    asked = WINDOW | {"inputs": "yes", "limit": 1}
    (told,) = page.get("/arcs/sums/why", params=asked).json()
    assert [(c["topic"], c["offset"]) for c in told["causes"]] == [("source.prices", 5)]
    assert [t["price"] for t in told["inputs"]["prices"]["after"]] == [30, 25, 22]
    (shown,) = page.get("/arcs/sums/why", params=asked | {"values": "shown"}).json()
    assert shown["causes"][0]["after"]["price"] == "22.00"
    assert shown["inputs"]["prices"]["after"][0]["at"] == "1970-01-01 01:45:00"


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/arcs/none", 404, "has no arc 'none'; it has: prices, "),
        ("/arcs/sums?key=colour=red", 400, "field of the identity of 'sums': symbol, window_start"),
        ("/arcs/sums?key=symbol", 400, "needs to be FIELD=VALUE"),
        ("/arcs/sums?as_of=9", 409, "is complete up to epoch 2 only"),
        ("/arcs/sums?as_of=now", 400, "as_of= needs a number"),
        ("/arcs/sums?limit=1000000", 400, "limit= needs a number up to 100000"),
        ("/arcs/sums?format=csv", 400, "format= needs to be json or arrow, found 'csv'"),
        ("/arcs/sums/why", 404, "such tuples; name one, by symbol, window_start"),
        ("/arcs/sums/why?key=symbol=none", 404, "no revision of such a tuple"),
        ("/dead-letters/0:99", 404, "no dead letter has the place 0:99"),
        ("/dead-letters/x", 400, "needs the form PARTITION:OFFSET"),
        ("/nothing", 404, "there is no /nothing"),
        ("/assets/../guard.py", 404, ""),
        ("/assets/%2e%2e/guard.py", 404, ""),
    ],
)
def test_what_can_not_be_answered_is_told(
    driver: Driver, page: TestClient, path: str, status: int, text: str
) -> None:
    figure(driver)
    answer = page.get(path)
    assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text


def test_dead_letters_are_counted_found_and_shown_with_their_bytes(
    driver: Driver, page: TestClient
) -> None:
    refused(driver)
    told = page.get("/dead-letters").json()
    assert (told["count"], told["reasons"]) == (3, {"undecodable": 2, "unknown identity": 1})
    assert [letter["place"][-1] for letter in told["letters"]] == ["2", "1", "0"]
    found = page.get("/dead-letters", params={"text": "script"}).json()
    assert [letter["value"] for letter in found["letters"]] == ["<script>alert(1)</script>"]
    assert page.get("/dead-letters", params={"reason": "unknown identity"}).json()["matching"] == 1
    letter = page.get("/dead-letters/source.prices:0:1").json()
    assert base64.b64decode(letter["value_bytes"]) == b"\xff\x00"
    assert letter["key_bytes"] is None


def test_a_dead_letter_is_sent_again_as_it_was_or_edited(
    driver: Driver, writing: TestClient
) -> None:
    refused(driver)
    sent = writing.post("/dead-letters/resend", json={"places": ["0:0", "0:1"]}).json()
    assert [x["sent_as"] for x in sent] == [3, 4]
    good = json.dumps({"op": "insert", "after": {"key": "k", "at": 5, "symbol": "IBM", "price": 1}})
    edited = {"places": ["0:2"], "value_base64": base64.b64encode(good.encode()).decode()}
    assert writing.post("/dead-letters/resend", json=edited).status_code == 200
    driver.close_epoch()
    assert [row["key"] for row in driver.table("prices")] == ["k"]


def test_dead_letters_that_are_acknowledged_are_left_out(
    driver: Driver, writing: TestClient, page: TestClient
) -> None:
    refused(driver)
    chosen = {"reason": "undecodable"}
    told = writing.post("/dead-letters/acknowledge", params=chosen).json()
    assert told == {"acknowledged": 2, "open": 1}
    found = page.get("/dead-letters").json()
    assert (found["count"], found["acknowledged"], found["reasons"]) == (
        1, 2, {"unknown identity": 1},
    )  # fmt: skip
    assert page.get("/dead-letters", params={"all": "yes"}).json()["count"] == 3
    one = {"place": found["letters"][0]["place"]}
    assert writing.post("/dead-letters/acknowledge", params=one).json()["open"] == 0
    assert page.post("/dead-letters/acknowledge", headers={OURS: "1"}).status_code == 403


@pytest.mark.parametrize(
    ("wish", "status"),
    [
        ({"places": ["0:0", "0:1"], "value_base64": "aa=="}, 400),
        ({"places": ["0:0"], "value_base64": "no base64"}, 400),
        ({"places": ["0:77"]}, 404),
        ({}, 400),
        ([1], 400),
        ({"places": 5}, 400),
    ],
)
def test_what_can_not_be_sent_is_refused(
    driver: Driver, writing: TestClient, wish: object, status: int
) -> None:
    refused(driver)
    answer = writing.post("/dead-letters/resend", json=wish)
    assert (answer.status_code, "error" in answer.json()) == (status, True)


def test_nothing_is_written_unless_that_is_allowed_and_asked_for_by_the_page_itself(
    driver: Driver, page: TestClient, pages: Pages
) -> None:
    refused(driver)
    wish = {"places": ["0:0"]}
    assert page.post("/dead-letters/resend", json=wish, headers={OURS: "1"}).status_code == 403
    foreign = pages.client(allow_writes=True)
    assert foreign.post("/dead-letters/resend", json=wish).status_code == 403


def test_every_answer_forbids_scripts_and_frames(page: TestClient) -> None:
    for path in ("/", "/assets/main.js", "/api/network", "/nothing"):
        headers = page.get(path).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
    refusal = page.post("/dead-letters/resend", json={}).headers
    assert {name: refusal[name] for name in HEADERS} == HEADERS
    assert "default-src 'none'" in HEADERS["content-security-policy"]


def test_only_its_own_names_are_answered_on_a_loopback_address(pages: Pages) -> None:
    """Another site's name may resolve to this machine."""
    assert pages.client(url="http://evil.example").get("/api/network").status_code == 421
    for name in ("localhost:9470", "127.0.0.1:9470", "[::1]:9470"):
        assert pages.client(url=f"http://{name}").get("/api/network").status_code == 200


def test_elsewhere_every_request_needs_the_token(pages: Pages) -> None:
    page = pages.client(host="0.0.0.0", token="secret", url="http://machine")
    for path in ("/", "/assets/main.js", "/api/network", "/api/network?token=wrong"):
        assert page.get(path).status_code == 401
    assert page.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert page.get("/api/network", headers={"authorization": "Bearer secret"}).status_code == 200
    entered = page.get("/?token=secret", follow_redirects=False)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=secret; HttpOnly;")
    assert "SameSite=strict" in cookie
    assert page.get("/api/network").status_code == 200
