"""A proxy before one broker that knows Kafka's frames, and does harm to requests and responses.

Rules say which requests, and what happens to them. A broker answers the requests of a connection in
their order; the proxy keeps it.

    with proxied_broker() as (broker, proxy):
        proxy.plan(Rule("EndTxn", "cut", "after"))
        ...                                           # clients with proxy.settings
        assert proxy.counts["EndTxn", "cut", "after"] == 1
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from errata.topics.broker import EmbeddedBroker
from tests.faults.frames import APIS, CRAFTED, Request, refusal

HOST = "127.0.0.1"

Action = Literal["hold", "drop", "repeat", "error", "cut"]
Where = Literal["before", "after"]
Address = tuple[str, int]
T = TypeVar("T")

NOT_LEADER, REQUEST_TIMED_OUT, COORDINATOR_LOADING, NOT_COORDINATOR = 6, 7, 14, 16
CONCURRENT_TRANSACTIONS = 51

_ANSWER_S = 30.0
"""How long the second delivery of a repeated request may take."""

_BUFFER = 1 << 20


@dataclass(frozen=True)
class Rule:
    """Which requests to harm, and how.

    - hold: pass the request on `hold_s` later (before), or its response (after). What follows on
      the connection waits too.
    - drop: swallow the request (before), or its response (after). The connection is dead from then
      on, but open: TCP loses nothing from the middle of a stream.
    - cut: close the client's connection instead of passing the request on (before), or once the
      broker has answered (after). The client does not see the answer.
    - repeat: deliver the request once more on another connection, and wait for that answer, which
      nobody sees: before the request is passed on, or after the broker has answered it. With a
      `hold_s` the second delivery is late: the answer is passed on at once.
    - error: answer with an error code without passing the request on (before), or instead of the
      broker's answer, which has done it (after).

    Args:
        api: Name of the API as Kafka's protocol has it, or "*" for any.
        action: What to do.
        where: "before" the broker sees the request, or "after" it has answered.
        count: How many requests to harm.
        hold_s: How long to hold, or how late a repetition is.
        error_code: Kafka's error code; by default NOT_LEADER for Produce and Fetch,
            NOT_COORDINATOR for the others. Both can be retried.
        probability: That a request that matches is harmed.
    """

    api: str
    action: Action
    where: Where
    count: int = 1
    hold_s: float = 0.0
    error_code: int | None = None
    probability: float = 1.0

    def __post_init__(self) -> None:
        if self.api != "*" and self.api not in APIS.values():
            raise ValueError(f"a rule needs the name of a Kafka API or '*', not '{self.api}'")
        if self.action == "error" and self.api not in {"*", *CRAFTED}:
            raise ValueError(f"errors can be crafted for {', '.join(CRAFTED)}, not '{self.api}'")
        if self.action == "hold" and self.hold_s <= 0:
            raise ValueError("a rule that holds needs hold_s > 0")
        if self.action == "repeat" and self.where == "before" and self.hold_s:
            raise ValueError("only a repetition after the answer can be late (hold_s)")

    def fits(self, request: Request) -> bool:
        """Tell whether the rule is about such a request."""
        if self.api not in ("*", request.api):
            return False
        if self.action == "error":
            return request.can_be_refused
        return self.where == "before" or request.is_answered


class FrameProxy:
    """A TCP proxy on 127.0.0.1 before one broker, as a context manager.

    All methods may be called from any thread.

    Args:
        target: The broker's address, or a function that returns it (asked for each connection).
        port: The port to listen on; 0 takes a free one, the same one on every later `start`.
        seed: Of the chance that `Rule.probability` asks.
    """

    def __init__(
        self, target: Address | Callable[[], Address], *, port: int = 0, seed: int = 0
    ) -> None:
        self._target = target if callable(target) else lambda: target
        self.port = port
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """How often each rule has been applied, by (api, action, where)."""
        self.beside: dict[str, str | int] = {}
        """Client settings to connect to the broker of `proxied_broker` without its proxy."""
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._rules: list[list[Any]] = []  # a rule, and how many requests it may still harm
        self._isolated: Callable[[int], bool] = lambda _: False
        self._links: dict[_Link, int] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The address for clients, as HOST:PORT."""
        return f"{HOST}:{self.port}"

    @property
    def settings(self) -> dict[str, str | int]:
        """Client settings to connect to the broker through this proxy."""
        return {"bootstrap.servers": self.address}

    def plan(self, *rules: Rule) -> None:
        """Add rules; the first one that fits a request is applied to it."""
        with self._lock:
            self._rules += [[rule, rule.count] for rule in rules]

    def clear(self) -> None:
        """Remove all rules. What is held stays so until its time."""
        with self._lock:
            self._rules.clear()

    def isolate(self, peer: Callable[[int], bool] = lambda _: True) -> None:
        """Cut connections and accept no new ones, until `rejoin`.

        Args:
            peer: Whether to do so to a client, by the port that it connects from. By default all.
        """
        self._isolated = peer
        links = self._on_loop(self._copied())
        self._on_loop(self._cut({link for link, port in links.items() if peer(port)}))

    def rejoin(self) -> None:
        """Accept connections again."""
        self._isolated = lambda _: False

    def start(self) -> None:
        """Listen; does nothing if it already does."""
        if self._thread is not None:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._on_loop(self._listen())

    def close(self) -> None:
        """Close the port and all connections; safe to call twice."""
        if self._loop is None or self._thread is None:
            return
        self._on_loop(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _on_loop(self, what: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "the proxy is not started"
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _copied(self) -> dict[_Link, int]:
        return dict(self._links)

    async def _cut(self, links: set[_Link]) -> None:
        for link in links:
            link.abort()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, HOST, self.port, limit=_BUFFER, start_serving=False
        )
        await self._server.start_serving()
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        self._server = None
        for task in self._late:
            task.cancel()
        for link in self._links:
            link.abort()
        await asyncio.gather(
            *(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker = await asyncio.open_connection(*self._target(), limit=_BUFFER)
        except OSError:  # the broker is down: the client sees that its connection is closed
            writer.transport.abort()
            return
        port = writer.get_extra_info("peername")[1]
        link = _Link(self, (reader, writer), broker)
        self._links[link] = port
        try:
            if self._server is None or await asyncio.to_thread(self._isolated, port):
                return
            await link.run()
        finally:
            link.abort()
            del self._links[link]

    def rule_for(self, request: Request) -> Rule | None:
        """Return the rule that a request falls under, if any, as used up once more."""
        with self._lock:
            for planned in self._rules:
                rule, left = planned
                if left <= 0 or not rule.fits(request):
                    continue
                if rule.probability < 1.0 and self._chance.random() >= rule.probability:
                    continue
                planned[1] -= 1
                return rule
        return None

    def applied(self, rule: Rule, request: Request) -> None:
        """Count that a rule was applied."""
        with self._lock:
            self.counts[request.api, rule.action, rule.where] += 1

    async def deliver_again(self, request: Request, rule: Rule) -> None:
        """Send a request on a connection of its own, and throw its answer away."""
        if rule.hold_s:
            task = asyncio.create_task(self._deliver(request, rule))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        else:
            await self._deliver(request, rule)

    async def _deliver(self, request: Request, rule: Rule) -> None:
        await asyncio.sleep(rule.hold_s)
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            reader, writer = await asyncio.open_connection(*self._target(), limit=_BUFFER)
            try:
                writer.write(request.frame)
                await writer.drain()
                if request.is_answered:
                    await asyncio.wait_for(_frame(reader), _ANSWER_S)
                self.applied(rule, request)
            finally:
                writer.transport.abort()


class _CutError(Exception):
    """A rule closes the connection."""


@dataclass(eq=False)
class _Answer:
    """The place of an answer among the answers of its connection."""

    request: Request
    rule: Rule | None
    frame: asyncio.Future[bytes]


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """A client's connection, and the one to the broker that belongs to it."""

    def __init__(self, proxy: FrameProxy, client: _Streams, broker: _Streams) -> None:
        self._proxy = proxy
        self._client, self._to_client = client
        self._broker, self._to_broker = broker
        self._answers: asyncio.Queue[_Answer] = asyncio.Queue()
        self._awaited: deque[asyncio.Future[bytes]] = deque()
        self._dead = False

    def abort(self) -> None:
        """Close both connections."""
        self._to_client.transport.abort()
        self._to_broker.transport.abort()

    async def run(self) -> None:
        """Pass requests and answers on until one side closes or a rule cuts."""
        try:
            async with asyncio.TaskGroup() as group:
                for task in (self._requests, self._responses, self._returns):
                    group.create_task(task())
        except* (_CutError, OSError, asyncio.IncompleteReadError):
            pass

    async def _requests(self) -> None:
        """Pass requests on, and note for each the place of its answer."""
        while True:
            request = Request(await _frame(self._client))
            if self._dead:
                continue
            rule = self._proxy.rule_for(request)
            if rule is not None and rule.where == "before":
                await self._apply(rule, request)
                if self._dead:
                    continue
                if rule.action == "error":
                    self._returned(request, None).set_result(_refusal(rule, request))
                    continue
                rule = None
            if request.is_answered:
                self._awaited.append(self._returned(request, rule))
            self._to_broker.write(request.frame)
            await self._to_broker.drain()

    def _returned(self, request: Request, rule: Rule | None) -> asyncio.Future[bytes]:
        answer = _Answer(request, rule, asyncio.get_running_loop().create_future())
        self._answers.put_nowait(answer)
        return answer.frame

    async def _responses(self) -> None:
        """Read what the broker answers."""
        while True:
            frame = await _frame(self._broker)
            self._awaited.popleft().set_result(frame)

    async def _returns(self) -> None:
        """Pass answers on in the order of their requests."""
        while True:
            answer = await self._answers.get()
            frame, rule = await answer.frame, answer.rule
            if rule is not None:
                await self._apply(rule, answer.request)
                if rule.action == "error":
                    frame = _refusal(rule, answer.request)
            if not self._dead:
                self._to_client.write(frame)
                await self._to_client.drain()

    async def _apply(self, rule: Rule, request: Request) -> None:
        if rule.action == "repeat":
            await self._proxy.deliver_again(request, rule)  # which counts it
            return
        self._proxy.applied(rule, request)
        match rule.action:
            case "hold":
                await asyncio.sleep(rule.hold_s)
            case "cut":
                raise _CutError
            case "drop":
                self._dead = True


def _refusal(rule: Rule, request: Request) -> bytes:
    usual = NOT_LEADER if request.api in ("Produce", "Fetch") else NOT_COORDINATOR
    return refusal(request, usual if rule.error_code is None else rule.error_code)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length))


@contextmanager
def proxied_broker(
    folder: str | Path | None = None, *, seed: int = 0, **overrides: str | int
) -> Iterator[tuple[EmbeddedBroker, FrameProxy]]:
    """Run a broker whose clients all come through a proxy.

    The broker's own requests, such as the markers of a transaction, don't.

    Args:
        folder: Folder of the broker's data; see `EmbeddedBroker`.
        seed: Of the proxy.
        overrides: Broker settings that replace the defaults.
    """
    port, inner, controller = free_ports(3)
    with FrameProxy((HOST, port), seed=seed) as proxy:
        listeners = {
            "listeners": f"PLAINTEXT://{HOST}:{port},INNER://{HOST}:{inner},"
            f"CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{proxy.address},INNER://{HOST}:{inner}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
        }
        with EmbeddedBroker(folder, port=port, overrides=listeners | overrides) as broker:
            proxy.beside["bootstrap.servers"] = f"{HOST}:{inner}"
            yield broker, proxy


PORTS = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on, all different.

    The system does not give them to connections: until a broker listens, one might get it.
    """
    found = list[int]()
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            found.append(port)
        if len(found) == count:
            break
    return found
