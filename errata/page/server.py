"""The HTTP side of the page: its files, its live messages, and answers as JSON or Arrow."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from importlib.resources import files
from io import BytesIO
from typing import Any

import pyarrow as pa
from anyio import Lock, to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from errata.client import rows
from errata.client.identity import IdentityTextError, NoSuchResultError
from errata.client.json_lines import json_line
from errata.client.reading import Table
from errata.deploy.deployment import UnknownNameError
from errata.page.desk import Desk, RequestError, key_of, shown
from errata.page.guard import Guard, refused
from errata.page.live import Live
from errata.processors.wire.dead_letter import PlaceError
from errata.processors.wire.report import INTERVAL_MS
from errata.schemas.errors import ErrataError
from errata.spark_jobs.reading import EpochAheadError, HistoryLostError

ASSETS = files("errata").joinpath("page", "assets")
ARROW = "application/vnd.apache.arrow.stream"
MOST_ROWS, USUAL_ROWS = 100_000, 1_000
"""Most tuples of a table in one answer in JSON, and how many there are if none is asked for."""
MOST_BODY = 4_000_000
"""Bytes of the largest request."""
_STATUS: dict[type[ErrataError], int] = {
    RequestError: 400,
    IdentityTextError: 400,
    PlaceError: 400,
    UnknownNameError: 404,
    NoSuchResultError: 404,
    EpochAheadError: 409,
    HistoryLostError: 410,
}
_KEEP_ALIVE_S = 10.0

log = logging.getLogger("errata")

Answer = Callable[[Request], Any]


class Page:
    """The page of a network.

    Args:
        live: What the network does.
        tables: Answers what is quick.
        reasons: Answers what may take long.
        allow_writes: Whether requests may write.
    """

    def __init__(self, live: Live, *, tables: Desk, reasons: Desk, allow_writes: bool) -> None:
        self.live, self.tables, self.reasons = live, tables, reasons
        self.allow_writes = allow_writes
        self._quick, self._slow = Lock(), Lock()

    def app(self, *, hosts: set[str], token: str) -> Guard:
        """Return the application; see `Guard`."""
        assets = StaticFiles(directory=str(ASSETS))
        routes = [
            Route("/", self._file("index.html", "text/html")),
            Route("/api/network", self._json(self._network)),
            Route("/api/events", self._events),
            Route("/arcs/{arc}", self._table),
            Route("/arcs/{arc}/history", self._json(self._history)),
            Route("/arcs/{arc}/why", self._json(self._why, is_slow=True)),
            Route("/dead-letters", self._json(self._letters)),
            Route("/dead-letters/resend", self._resend, methods=["POST"]),
            Route("/dead-letters/acknowledge", self._acknowledge, methods=["POST"]),
            Route("/dead-letters/{place:path}", self._json(self._letter)),
            Mount("/assets", assets),
        ]
        handlers = {404: _nothing, ErrataError: _failed, Exception: _internal}
        app = Starlette(routes=routes, exception_handlers=handlers)
        return Guard(app, hosts=hosts, token=token, allow_writes=self.allow_writes)

    # ---------------------------------------------------------------- answers

    def _network(self, request: Request) -> Any:
        return self.tables.network() | {"allows_writes": self.allow_writes}

    async def _table(self, request: Request) -> Response:
        return await _answered(self._table_now, request, self._quick)

    def _table_now(self, request: Request) -> Response:
        limit = _number(request, "limit", USUAL_ROWS, most=MOST_ROWS)
        as_of = _number(request, "as_of", None)
        is_arrow = _chosen(request, "format", ("json", "arrow")) == "arrow"
        is_arrow |= ARROW in request.headers.get("accept", "")
        table = self.tables.table(request.path_params["arc"], _given(request), as_of)
        if is_arrow:
            return Response(_stream(table), media_type=ARROW)
        tuples = rows.tuples(table.kind, table.content.head(limit))
        content = {
            "arc": table.arc,
            "epoch": table.epoch,
            "at_ms": table.epoch * INTERVAL_MS if table.epoch >= 0 else None,
            "watermark_ms": table.watermark_ms,
            "count": len(table),
            "tuples": tuples,
        }
        if _shows(request):
            content["tuples"] = [shown(table.kind, row) for row in tuples]
            content["keys"] = [key_of(table.kind, row) for row in tuples]
        return _as_json(content)

    def _history(self, request: Request) -> Any:
        arc, given = request.path_params["arc"], _given(request)
        return self.tables.history(arc, given, as_shown=_shows(request))

    def _why(self, request: Request) -> Any:
        return self.reasons.why(
            request.path_params["arc"],
            _given(request),
            limit=_number(request, "limit", 5, most=100),
            with_inputs=_chosen(request, "inputs", ("no", "yes")) == "yes",
            as_shown=_shows(request),
        )

    def _letters(self, request: Request) -> Any:
        wishes = {n: v for n, v in request.query_params.items() if v and n != "limit"}
        return self.tables.letters(wishes, limit=_number(request, "limit", 100, most=1_000))

    def _letter(self, request: Request) -> Any:
        return self.tables.letter(request.path_params["place"])

    async def _resend(self, request: Request) -> Response:
        if int(request.headers.get("content-length") or MOST_BODY + 1) > MOST_BODY:
            return refused(413, f"a request has at most {MOST_BODY} bytes, and says how many")
        try:
            wish = await request.json()
            places = [str(place) for place in wish.pop("places")]
        except (ValueError, KeyError, TypeError, AttributeError):
            return refused(400, 'needs JSON with "places": a list of PARTITION:OFFSET')

        def send(_: Request) -> Response:
            return _as_json(self.tables.resend(places, wish))

        return await _answered(send, request, self._quick)

    async def _acknowledge(self, request: Request) -> Response:
        wishes = {n: v for n, v in request.query_params.items() if v}

        def note(_: Request) -> Response:
            return _as_json(self.tables.acknowledge(wishes))

        return await _answered(note, request, self._quick)

    # ---------------------------------------------------------------- live messages

    async def _events(self, request: Request) -> Response:
        return StreamingResponse(self._messages(), media_type="text/event-stream")

    async def _messages(self) -> AsyncIterator[bytes]:
        """Yield server-sent events, until nobody listens or watches."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(news.set)

        self.live.listeners.append(tell)
        last: int | None = None
        try:
            while not self.live.is_over:
                last, texts = self.live.messages(last)
                for text in texts:
                    yield b"data: " + text + b"\n\n"
                try:
                    await asyncio.wait_for(news.wait(), _KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": nothing new\n\n"
                news.clear()
        finally:
            self.live.listeners.remove(tell)

    def _json(self, answer: Answer, *, is_slow: bool = False) -> Callable[[Request], Any]:
        """Return an endpoint that answers with what `answer` returns, as JSON."""

        async def endpoint(request: Request) -> Response:
            turn = self._slow if is_slow else self._quick
            return await _answered(lambda given: _as_json(answer(given)), request, turn)

        return endpoint

    def _file(self, name: str, kind: str) -> Callable[[Request], Response]:
        content = ASSETS.joinpath(name).read_bytes()
        return lambda request: Response(content, media_type=kind)


async def _answered(
    answer: Callable[[Request], Response], request: Request, turn: Lock
) -> Response:
    """Answer in a thread, one request at a time; not if nobody waits any more."""
    async with turn:
        if await request.is_disconnected():
            return Response(status_code=499)
        try:
            return await to_thread.run_sync(partial(answer, request))
        except ErrataError as error:
            return _failed(request, error)


def _failed(request: Request, error: Exception) -> Response:
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 503)
    return refused(status, str(error))


def _internal(request: Request, error: Exception) -> Response:
    log.error("internal error in the page: %s: %s", type(error).__name__, error)
    return refused(500, "internal error of the page; its log says which")


def _nothing(request: Request, error: Exception) -> Response:
    return refused(404, f"there is no {request.url.path}")


def _as_json(content: Any) -> Response:
    return Response(json_line(content), media_type="application/json")


def _stream(table: Table) -> bytes:
    """Return a table as an Arrow stream; its schema has the epoch and the watermark."""
    found, sink = table.to_arrow(), BytesIO()
    about: Mapping[str, str] = {"epoch": str(table.epoch), "watermark_ms": str(table.watermark_ms)}
    schema = found.schema.with_metadata(about)
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(found.replace_schema_metadata(schema.metadata))
    return sink.getvalue()


def _given(request: Request) -> list[str]:
    """Return the fields of an identity in a query, each as ``key=FIELD=VALUE``."""
    return request.query_params.getlist("key")


def _number(request: Request, name: str, default: Any, *, most: int = 2**62) -> Any:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.lstrip("-").isdecimal() and -1 <= int(text) <= most):
        raise RequestError(f"{name}= needs a number up to {most}, found {text!r}")
    return int(text)


def _chosen(request: Request, name: str, known: tuple[str, ...]) -> str:
    text = request.query_params.get(name, known[0])
    if text not in known:
        raise RequestError(f"{name}= needs to be {' or '.join(known)}, found {text!r}")
    return text


def _shows(request: Request) -> bool:
    """Return whether values are wanted as they are shown: as texts, long ones cut."""
    return _chosen(request, "values", ("plain", "shown")) == "shown"


def watching(live: Live) -> threading.Thread:
    """Start the thread that watches a network."""
    thread = threading.Thread(target=live.run, name="watch", daemon=True)
    thread.start()
    return thread
