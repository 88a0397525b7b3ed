"""What all clients of one Kafka cluster share: settings, secrets, and error reporting.

A `Mismatch` tells a broker of another protocol from a port whose broker has not started yet.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from struct import pack
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakMethod

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from errata.topics import secrets
from errata.topics.cluster import (
    LOGGER,
    ClusterError,
    MissingTopicError,
    MovingLeaderError,
    SilentClusterError,
    TopicPartition,
)
from errata.topics.refused import (
    CODES,
    LOGIN,
    TOPIC,
    WRITE,
    RefusedError,
    Right,
    missing_right,
    principal,
    refusal,
)

Settings = Mapping[str, str | int]
T = TypeVar("T")

REACH_S = 10.0
"""How long a cluster may take to answer before it counts as unreachable."""

LOOK_S = 1.0
"""How often to refresh the list of live brokers while one of them does not answer."""

_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._NOENT,  # from list_offsets
}


_SILENCE = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._PARTIAL,  # from list_topics: a broker that has just started lists none
}


_MOVING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


_COORDINATING = {  # the coordinator is the leader of a partition of the brokers' own topics
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError._WAIT_COORD,
}


class TopicExistsError(ClusterError):
    """A topic to be created already exists; another process may have just created it."""


class TooFewBrokersError(ClusterError):
    """A topic needs more replicas than there are brokers at the moment."""


class Connection:
    """The settings and errors that the clients of one cluster share.

    Errors that no retry resolves (authentication, TLS, ACLs) arrive in callbacks; they are kept and
    raised by the next `check`. No message contains a secret.

    Args:
        settings: librdkafka settings, including `bootstrap.servers`.
        reach_s: Time limit for the first answer, and for one after all brokers were lost.
    """

    def __init__(self, settings: Settings, *, reach_s: float = REACH_S) -> None:
        if not settings.get("bootstrap.servers"):
            raise ClusterError(
                "no Kafka cluster is configured: set bootstrap.servers (KAFKA_BOOTSTRAP_SERVERS)"
            )
        self._settings = dict(settings)
        secrets.remember(settings)
        self._reach_s = reach_s
        self._refusal: ClusterError | None = None
        self._mismatch = Mismatch(self._servers)
        self._all_down = False
        self._last_trouble = ""
        self._callback = weak_callback(self.on_error)
        self.renew()
        try:
            self._reach(at_start=True)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        """Return the servers, without anything that may be secret."""
        return f"Connection({self._servers!r})"

    @property
    def _servers(self) -> str:
        return str(self._settings["bootstrap.servers"])

    def setting(self, key: str, default: int) -> int:
        """Return an integer setting of the user's, or the default."""
        return int(self._settings.get(key, default))

    def renew(self) -> None:
        """Replace the client of requests; what it has been asked is still answered.

        When a partition has had no leader for a moment, librdkafka 2.16 may never learn of the next
        one (its issue 5430). A new client does.
        """
        self.admin: AdminClient = self.client(
            AdminClient,
            {
                "reconnect.backoff.max.ms": 1000,
                # else a request outlives `ask`
                "socket.timeout.ms": max(10, int(self._reach_s * 1000)),
            },
        )

    def close(self) -> None:
        """Close the client of requests; safe to call twice."""
        self.admin.__exit__(None, None, None)  # it has no close()

    def client(
        self,
        kind: Callable[..., T],
        defaults: Mapping[str, Any],
        laws: Mapping[str, Any] | None = None,
    ) -> T:
        """Create a client; the user's settings override the defaults, the laws override everything.

        Raises:
            ClusterError: If librdkafka refuses a setting.
        """
        common = {"error_cb": self._callback, "logger": LOGGER, "client.id": "errata"}
        try:
            return kind({**common, **defaults, **self._settings, **(laws or {})})
        except (KafkaException, TypeError, ValueError) as error:
            if "SASL mechanism GSSAPI" in str(error):
                raise ClusterError(
                    "sasl.mechanism is not set, and its default GSSAPI is not built in; set "
                    "sasl.mechanism (as PLAIN or SCRAM-SHA-512), sasl.username and sasl.password"
                ) from None
            raise ClusterError(
                f"a Kafka setting is refused: {self.clean(error)}; correct it"
            ) from None  # the cause may quote a secret

    def on_error(self, error: KafkaError) -> None:
        """Record an error that a client reports; called from within the client's own calls."""
        if error.code() in CODES:
            self._refusal = self.failure("the cluster", KafkaException(error))
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True
            if not self._last_trouble:  # a connection that opens and closes is no error to it
                self._mismatch.record("")
        else:
            self._last_trouble = self.clean(error)
            self._mismatch.record(self._last_trouble)

    def on_lost(self, topic: str, error: KafkaError) -> None:
        """Record why a record was not written, if no retry resolves it: `check` raises it."""
        if error.code() in CODES or error.code() in _MISSING:
            right = Right(WRITE, TOPIC, topic)
            self._refusal = self.failure(f"topic '{topic}'", KafkaException(error), right=right)

    def refusal(self, right: Right) -> RefusedError:
        """Return the error to raise for a right that this client lacks."""
        return refusal(self._servers, principal(self._settings), right)

    def check(self) -> None:
        """Raise the error that was reported since the last call, if any.

        Raises:
            RefusedError: If the cluster refuses this client.
            ClusterError: If no broker can be reached any more.
        """
        self._raise_refusal()
        if self._all_down:
            self._all_down = False
            self._reach()

    def _raise_refusal(self) -> None:
        if self._refusal:
            raise self._refusal from None

    def wait_for(
        self,
        what: str,
        answer: Future[T],
        *,
        right: Right | None = None,
        limit_s: float | None = None,
    ) -> T:
        """Wait for the answer to an admin request.

        librdkafka sends most requests to one broker, and reconnects to it in a tight loop until it
        learns that the broker is gone; so the broker list is refreshed meanwhile.

        Args:
            what: The subject of the request, as an error names it.
            answer: The future of the answer.
            right: The right that the request needs.
            limit_s: How long it may take; by default as long as a cluster may take to answer.

        Raises:
            ClusterError: If it refuses, or does not answer in time.
        """
        started = monotonic()
        deadline, refresh_at = (
            started + (self._reach_s if limit_s is None else limit_s),
            started + LOOK_S,
        )
        while not wait([answer], 0.05).done and monotonic() < deadline and not self._refusal:
            self.admin.poll(0)  # serves on_error, which may end the wait
            if monotonic() > refresh_at:
                with suppress(KafkaException):
                    self.admin.list_topics(timeout=LOOK_S)
                refresh_at = monotonic() + LOOK_S
        self._raise_refusal()
        try:
            result = answer.result(timeout=0.5)
        except (KafkaException, TimeoutError) as error:
            raise self.failure(what, error, right=right) from None
        self._all_down = False  # the errors reported meanwhile are resolved
        return result

    def leaderless(
        self, places: Iterable[TopicPartition], *, limit_s: float
    ) -> list[TopicPartition] | None:
        """Return those of some partitions of which a broker says that they have no leader.

        None if no broker answers.
        """
        try:
            topics = self.admin.list_topics(timeout=limit_s).topics
        except KafkaException:
            return None
        return [
            place
            for place in places
            if place.topic in topics
            and (known := topics[place.topic].partitions.get(place.partition)) is not None
            and known.leader < 0
        ]

    def failure(
        self, what: str, error: BaseException, *, right: Right | None = None
    ) -> ClusterError:
        """Return the error to raise for a failed request about something.

        Args:
            what: The subject of the request, as the error names it.
            error: Why the request failed.
            right: The right that the request needs.
        """
        code = error.args[0].code() if isinstance(error, KafkaException) else KafkaError._TIMED_OUT
        if code in _MISSING:
            return MissingTopicError(
                f"{self._servers} has no {what}; create it (`errata deploy` creates the "
                "topics of a network)"
            )
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return TopicExistsError(f"{self._servers} already has a {what}; choose another name")
        if code == KafkaError.INVALID_REPLICATION_FACTOR:
            return TooFewBrokersError(
                f"{self._servers} can't create {what}: {self.clean(error)} start more brokers, or "
                "lower their default.replication.factor"
            )
        if code in _SILENCE:
            trouble = self._last_trouble or self._mismatch.reason
            trouble = f" ({trouble})" if trouble else ""
            return SilentClusterError(
                f"no broker answers at {self._servers} within {self._reach_s:g} s{trouble}; "
                f"start it, or set bootstrap.servers to where it is{self._unused_login()}"
            )
        if code in _MOVING:
            return MovingLeaderError(f"{what} has no leader at {self._servers} yet; try again")
        if code in _COORDINATING:
            return MovingLeaderError(f"{what} has no coordinator at {self._servers} yet; try again")
        if code in LOGIN:
            return RefusedError(
                f"{self._servers} refuses this client: {self.clean(error)}; {LOGIN[code]}"
            )
        if code in CODES and right is not None:
            return self.refusal(missing_right(code, right))
        failed = f"a request for {what} to {self._servers} failed: {self.clean(error)}"
        if code in CODES:
            return RefusedError(f"{failed}; give this user the right, see `errata acls NET`")
        return ClusterError(f"{failed}; see the broker's log")

    def _unused_login(self) -> str:
        """Return which settings of a login have no effect; "" if there are none."""
        protocol = str(self._settings.get("security.protocol", "plaintext")).lower()
        login = sorted(key for key in self._settings if key.startswith("sasl."))
        if not login or protocol.startswith("sasl"):
            return ""
        return (
            f"; {login[0]} has no effect with security.protocol={protocol.upper()}, which would "
            "have to be SASL_SSL or SASL_PLAINTEXT"
        )

    def _reach(self, *, at_start: bool = False) -> None:
        """Wait until a broker answers.

        It requests the topic list: librdkafka 2.16 aborts the process in `describe_cluster` when a
        broker that has just started lists no brokers yet, but retries this request.
        """
        deadline, wait_s = monotonic() + self._reach_s, 0.1
        while True:
            longest_s = min(wait_s, deadline - monotonic())
            if self._mismatch.reason:
                longest_s = min(longest_s, 1.0)
            try:
                self.admin.list_topics(timeout=max(0.01, longest_s))
            except KafkaException as error:
                self.admin.poll(0.05)  # serves on_error, which may end the wait
                self._raise_refusal()
                if at_start and self._mismatch.has_lasted():
                    raise RefusedError(
                        f"{self._servers} ends every connection: {self._mismatch.reason}; check "
                        "security.protocol, the port and the ssl.* settings"
                    ) from None
                if monotonic() > deadline or error.args[0].code() not in _SILENCE:
                    raise self.failure("the cluster", error) from None
                wait_s *= 2  # so that a slow answer arrives too
            else:
                self._all_down = False  # the errors reported meanwhile are resolved
                return

    def clean(self, error: object) -> str:
        """Return an error's text without secrets."""
        if isinstance(error, KafkaException):
            error = error.args[0]
        return secrets.clean(error.str() if isinstance(error, KafkaError) else error)


def weak_callback(method: Callable[[T], None]) -> Callable[[T], None]:
    """Return a callback that holds the method's object by a weak reference.

    A client in a reference cycle with its owner would live, with its threads and connections, until
    Python's garbage collector finds the cycle.
    """
    reference = WeakMethod(method)

    def callback(news: T) -> None:
        bound_method = reference()
        if bound_method is not None:
            bound_method(news)

    return callback


MISMATCH_S = 5.0
"""A server that responds but drops all connections for so long uses another protocol, as TLS."""

_MISMATCH = re.compile(r"connecting to a |Invalid response size|SSL.* alert")
_UNREACHED = re.compile(r"Connect to|timed out|resolve")
_PROBE_S = 0.5
_PORT = 9092

_API_VERSIONS = pack(">ihhih", 10, 18, 0, 0, -1)
"""Length, API key, version, correlation id, no client id: every broker answers any client."""


class Mismatch:
    """Detects brokers that use another protocol: they close every connection.

    Others close them too: a proxy such as Docker's accepts connections before its broker runs. So a
    closed connection counts only if the server answers something, in Kafka's protocol or in TLS.

    Args:
        servers: The `bootstrap.servers`.

    Attributes:
        reason: The error that suggests another protocol; "" if there is none.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._responding_since: float | None = None
        self.reason = ""

    def record(self, trouble: str) -> None:
        """Record an error that a client reports; "" if connections close without a reason."""
        if _UNREACHED.search(trouble):
            self.reason, self._responding_since = "", None
        elif not self.reason and (not trouble or _MISMATCH.search(trouble)):
            self.reason = trouble or "it accepts and closes them"

    def has_lasted(self) -> bool:
        """Return whether the mismatch has lasted too long; to be polled."""
        if not self.reason or not any(map(responds, self._servers.split(","))):
            self._responding_since = None
            return False
        self._responding_since = self._responding_since or monotonic()
        return monotonic() - self._responding_since > MISMATCH_S


def responds(server: str) -> bool:
    """Return whether a server answers anything at all to a Kafka or a TLS request.

    Args:
        server: ``HOST``, ``HOST:PORT`` or ``PROTOCOL://HOST:PORT``.
    """
    address = urlsplit(f"//{server.strip().rpartition('://')[2]}")
    return any(
        _answers((address.hostname or "", address.port or _PORT), request)
        for request in (_API_VERSIONS, _client_hello())
    )


def _answers(address: tuple[str, int], request: bytes) -> bool:
    try:
        with socket.create_connection(address, _PROBE_S) as connection:
            connection.sendall(request)
            return connection.recv(1) != b""
    except OSError:
        return False


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()
