"""What all clients of one Kafka cluster share: settings, secrets, the faults they report."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakMethod

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from topics.cluster import ClusterError, MovingLeaderError

Settings = Mapping[str, str | int]
T = TypeVar("T")

LOGGER = logging.getLogger("errata.kafka")
LOGGER.addHandler(logging.NullHandler())  # else librdkafka's lines reach the user's terminal
LOGGER.propagate = False

REACH_S = 10.0
"""How long a cluster may take to answer before it counts as not there."""

_SECRET = re.compile(r"password|secret|jaas|token|\.pem$|oauthbearer\.config|user\.info")

_REFUSALS = {
    KafkaError._AUTHENTICATION: "check security.protocol and the sasl.* settings",
    KafkaError.SASL_AUTHENTICATION_FAILED: "check sasl.username and sasl.password",
    KafkaError._SSL: "check security.protocol and the ssl.* settings",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "give this user the right",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "give this user the right",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "give this user the right",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "give this user the right",
}


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


class TopicExistsError(ClusterError):
    """A topic to be made is there already, perhaps just made by another process."""


class Connection:
    """One cluster as its clients reach it.

    Faults that no retry heals (authentication, TLS, rights) arrive in callbacks; they are kept and
    raised by the next `check`. No message holds a secret.

    Args:
        settings: librdkafka settings, `bootstrap.servers` among them.
        reach_s: Limit for the first answer and for those after all brokers were lost.
    """

    def __init__(self, settings: Settings, *, reach_s: float = REACH_S) -> None:
        if not settings.get("bootstrap.servers"):
            raise ClusterError(
                "no Kafka cluster is configured: set bootstrap.servers (KAFKA_BOOTSTRAP_SERVERS)"
            )
        self._settings = dict(settings)
        self._secrets = [str(v) for k, v in settings.items() if _SECRET.search(k) and str(v)]
        self._reach_s = reach_s
        self._refusal: str | None = None
        self._all_down = False
        self._last_trouble = ""
        self._told = _weakly(self.on_error)
        self.admin: AdminClient = self.client(AdminClient, {"reconnect.backoff.max.ms": 1000})
        self._reach()

    def __repr__(self) -> str:
        """Return the servers, and nothing that may be secret."""
        return f"Connection({self._servers!r})"

    @property
    def _servers(self) -> str:
        return str(self._settings["bootstrap.servers"])

    def setting(self, key: str, default: int) -> int:
        """Return a whole-number setting of the user's, or the default."""
        return int(self._settings.get(key, default))

    def client(
        self,
        kind: Callable[..., T],
        defaults: Mapping[str, Any],
        laws: Mapping[str, Any] | None = None,
    ) -> T:
        """Make a client; the user's settings go before the defaults, the laws before all.

        Raises:
            ClusterError: If librdkafka refuses a setting.
        """
        ours = {"error_cb": self._told, "logger": LOGGER, "client.id": "errata"}
        try:
            return kind({**ours, **defaults, **self._settings, **(laws or {})})
        except (KafkaException, TypeError, ValueError) as error:
            raise ClusterError(
                f"a Kafka setting is refused: {self.clean(error)}; correct it"
            ) from None  # the cause may quote a secret

    def on_error(self, error: KafkaError) -> None:
        """Remember what a client reports; called from within its own calls."""
        remedy = _REFUSALS.get(error.code())
        if remedy:
            self._refusal = f"{self._servers} refuses this client: {self.clean(error)}; {remedy}"
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True
        else:
            self._last_trouble = self.clean(error)

    def check(self) -> None:
        """Raise what was reported since the last call.

        Raises:
            ClusterError: If the cluster refuses us, or all brokers are gone and stay gone.
        """
        if self._refusal:
            raise ClusterError(self._refusal)
        if self._all_down:
            self._all_down = False
            self._reach()

    def ask(self, what: str, answer: Future[T]) -> T:
        """Wait for the cluster's answer to an administrative question.

        Args:
            what: What is asked for, as an error names it.
            answer: The answer to come.

        Raises:
            ClusterError: If it refuses, or does not answer in time.
        """
        deadline = monotonic() + self._reach_s
        while not wait([answer], 0.05).done and monotonic() < deadline and not self._refusal:
            self.admin.poll(0)  # serves on_error, which may end the wait
        if self._refusal:
            raise ClusterError(self._refusal)
        try:
            result = answer.result(timeout=0.5)
        except (KafkaException, TimeoutError) as error:
            raise self.failure(what, error) from None
        self._all_down = False  # what was reported meanwhile is over
        return result

    def failure(self, what: str, error: BaseException) -> ClusterError:
        """Return the error to raise for a failed question about something."""
        code = error.args[0].code() if isinstance(error, KafkaException) else KafkaError._TIMED_OUT
        if code in _MISSING:
            return ClusterError(
                f"{self._servers} has no {what}; create it; a network's own are made by `errata up`"
            )
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return TopicExistsError(f"{self._servers} has a {what} already; give another name")
        if code in _SILENCE:
            trouble = f" ({self._last_trouble})" if self._last_trouble else ""
            return ClusterError(
                f"no broker answers at {self._servers} within {self._reach_s:g} s{trouble}; "
                "start it, or set bootstrap.servers to where it is"
            )
        if code in _MOVING:
            return MovingLeaderError(f"{what} has no leader at {self._servers} yet; try again")
        remedy = _REFUSALS.get(code, "see the broker's log")
        return ClusterError(f"{what}, asked of {self._servers}: {self.clean(error)}; {remedy}")

    def _reach(self) -> None:
        """Wait until a broker answers.

        It is asked for the topics: librdkafka 2.16 aborts the process over `describe_cluster` when
        a broker that has just started lists no brokers yet, and asks again here.
        """
        deadline, wait_s = monotonic() + self._reach_s, 0.1
        while True:
            try:
                self.admin.list_topics(timeout=max(0.01, min(wait_s, deadline - monotonic())))
            except KafkaException as error:
                self.admin.poll(0.05)  # serves on_error, which may end the wait
                if self._refusal:
                    raise ClusterError(self._refusal) from None
                if monotonic() > deadline or error.args[0].code() not in _SILENCE:
                    raise self.failure("the cluster", error) from None
                wait_s *= 2  # an answer that takes long comes too
            else:
                self._all_down = False  # what was reported meanwhile is over
                return

    def clean(self, error: object) -> str:
        """Return an error's text without secrets."""
        if isinstance(error, KafkaException):
            error = error.args[0]
        text = error.str() if isinstance(error, KafkaError) else str(error)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _weakly(method: Callable[[KafkaError], None]) -> Callable[[KafkaError], None]:
    """Return a callback that does not keep the method's object.

    A client that is in a circle with who holds it would live, with its threads and connections,
    until Python's collector finds the circle.
    """
    known = WeakMethod(method)

    def told(error: KafkaError) -> None:
        there = known()
        if there is not None:
            there(error)

    return told
