"""A schema registry server, reached by the standard Confluent client.

While it gives no answer, it is waited for at startup and tolerated later; an `Outage` logs both.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable, Mapping
from importlib import import_module
from time import monotonic, sleep
from typing import Any, TypeVar
from weakref import finalize

from errata.schemas.compatible import unreadable
from errata.topics.cluster import Cluster, ClusterError
from errata.topics.refused import RefusedError
from errata.topics.registry import (
    COMPATIBLE,
    INCOMPATIBLE,
    NEW,
    SAME,
    JudgingRegistry,
    NotAvroError,
    RegistryAwayError,
    SchemaRegistry,
    UnknownSchemaError,
    Verdict,
)
from errata.topics.secrets import clean, remember

log = logging.getLogger("errata")

T = TypeVar("T")

WAIT_S = 30.0
"""How long to wait for a server that has not answered yet."""
_AGAIN_S = 0.5

_NOT_FOUND, _NO_LOGIN, _NO_RIGHT = 404, 401, 403
_PROXY_ALONE = {502, 503, 504}
"""Statuses with which a proxy reports that the server behind it is unavailable."""
_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors of a server that is starting or stopping."""
_PATIENCE = {"timeout": 3, "max.retries": 0}
"""The process does nothing else meanwhile, and retries by itself."""


def _http() -> Any:
    """Return the HTTP library that the client uses: of two, the one that it prefers."""
    try:
        return import_module("httpx2")
    except ImportError:
        return import_module("httpx")


class RegistryServer:
    """A `Registry` on a server.

    Args:
        settings: Those of its client: ``url`` (SCHEMA_REGISTRY_URL), ``basic.auth.user.info``,
            ``ssl.ca.location`` and so on.

    Raises:
        ClusterError: If its client is not installed, or refuses a setting.
    """

    def __init__(self, settings: Mapping[str, str | int]) -> None:
        remember(settings)
        try:
            self._library: Any = import_module("confluent_kafka.schema_registry")
            self._unreachable: Any = _http().HTTPError  # raised by the client
        except ImportError as error:
            raise ClusterError(
                f"a schema registry is configured, but its client lacks '{error.name}'; "
                "run: pip install 'confluent-kafka[schemaregistry]'"
            ) from error
        try:
            self._client = self._library.SchemaRegistryClient({**_PATIENCE, **settings})
        except (ValueError, TypeError, OSError) as error:
            raise ClusterError(
                f"a setting of the schema registry is refused: {clean(error)}; correct it"
            ) from None  # the cause may quote a secret
        finalize(self, self._client.__exit__)  # closes its connections
        self._schemas: dict[int, dict[str, Any]] = {}
        self.outage = Outage("the schema registry", self._is_away)
        self._ids: dict[tuple[str, str], int] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema; registers it under a subject if it is new there.

        The schema is looked up first: if it exists, no right to write is needed.

        Raises:
            ClusterError: If the server is not there, or refuses, as it does a schema that old
                readers can't read.
        """
        text = json.dumps(schema)
        if (subject, text) not in self._ids:
            found, what = self._lookup(subject, text), f"the schema of subject '{subject}'"
            if found is None:
                avro = self._avro(text)
                found = self._ask(what, lambda: self._client.register_schema(subject, avro))
            if found is None:
                raise ClusterError(
                    f"the schema registry has no place for {what}: it answers not found; correct "
                    "SCHEMA_REGISTRY_URL, which may lack a path"
                )
            self._ids[subject, text] = int(found)
        return self._ids[subject, text]

    def judge(self, subject: str, schema: dict[str, Any]) -> Verdict:
        """Return what registering a schema would do, by the subject's compatibility level."""
        text, what = json.dumps(schema), f"the schema of subject '{subject}'"
        if self._lookup(subject, text) is not None:
            return Verdict(subject, SAME)
        latest = self.latest(subject)
        if latest is None:
            return Verdict(subject, NEW)
        avro, client = self._avro(text), self._client
        fits = self._ask(what, lambda: client.test_compatibility_all_versions(subject, avro))
        if fits:
            return Verdict(subject, COMPATIBLE)
        # The server reports that, not why; the likely reason is Avro's rules applied to the latest
        # schema.
        found = unreadable(schema, latest[1]) or unreadable(latest[1], schema)
        reasons = tuple(found) or ("an older version of the subject does not fit",)
        return Verdict(subject, INCOMPATIBLE, self._level(subject), reasons)

    def _level(self, subject: str) -> str:
        """Return the compatibility level of a rejecting subject: its own, else the global one.

        Some servers return NONE for a subject that has no level of its own.
        """
        what, client = f"the compatibility level of subject '{subject}'", self._client
        own = str(self._ask(what, lambda: client.get_compatibility(subject)) or "NONE")
        return own if own != "NONE" else str(self._ask(what, client.get_compatibility) or "")

    def _lookup(self, subject: str, text: str) -> int | None:
        """Return the id of a schema if it is registered under a subject."""
        what, avro = f"the schema of subject '{subject}'", self._avro(text)
        found = self._ask(what, lambda: self._client.lookup_schema(subject, avro))
        return None if found is None else int(found.schema_id)

    def _avro(self, text: str) -> Any:
        return self._library.Schema(text, "AVRO")

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema."""
        if schema_id not in self._schemas:
            what = f"schema {schema_id}"
            get = self._client.get_schema
            found = self._ask(what, lambda: get(schema_id), is_patient=False)
            if found is None:
                raise UnknownSchemaError(schema_id, registry="the schema registry")
            self._schemas[schema_id] = _avro(found, what)
        return self._schemas[schema_id]

    def latest(self, subject: str) -> tuple[int, Any] | None:
        """Return the id and the schema last registered under a subject; None if there is none."""
        what = f"the schema of subject '{subject}'"
        found = self._ask(what, lambda: self._client.get_latest_version(subject))
        return None if found is None else (int(found.schema_id), _avro(found.schema, what))

    def _ask(self, what: str, question: Callable[[], Any], *, is_patient: bool = True) -> Any:
        """Return the answer, None if the server does not know what it is asked for.

        Only a process that ingests records may be impatient: others go on meanwhile.
        """
        try:
            return self.outage.ask(lambda: self._trusting(question), is_patient=is_patient)
        except self._library.SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                return None
            if self._is_away(error):
                raise self._away(what, error) from None  # causes may quote a secret
            if error.http_status_code in (_NO_LOGIN, _NO_RIGHT):
                remedy = "check schema_registry.basic.auth.user.info"
                if error.http_status_code == _NO_RIGHT:
                    remedy = "give this user the right, or have `errata deploy` register it"
                raise RefusedError(
                    f"the schema registry refuses {what}: {clean(error.error_message)}; {remedy}"
                ) from None
            raise ClusterError(
                f"the schema registry refuses {what}: {clean(error.error_message)}; keep the arc's "
                "fields as they were, or give it a new name"
            ) from None
        except self._unreachable as error:
            raise self._away(what, error) from None

    def _trusting(self, question: Callable[[], Any]) -> Any:
        """Return the answer; raise for a server with which no TLS handshake has ever succeeded."""
        try:
            return question()
        except self._unreachable as error:
            fault = _tls_fault(error)
            if fault is None or self.outage.has_answered:
                raise
            raise RefusedError(
                f"no TLS between the schema registry and this client: {clean(fault)}; check the "
                "schema_registry.ssl.* settings, and https or http in SCHEMA_REGISTRY_URL"
            ) from None

    def _is_away(self, error: Exception) -> bool:
        status = getattr(error, "http_status_code", None)
        return isinstance(error, self._unreachable) or status in _PROXY_ALONE

    def _away(self, what: str, error: Exception) -> RegistryAwayError:
        return RegistryAwayError(
            f"the schema registry, asked for {what}, gives no answer: {clean(error)}; start it, "
            "or correct SCHEMA_REGISTRY_URL"
        )


def _tls_fault(error: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS error behind an error, if one side did not accept the other."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, _CUT):
            return error
        error = error.__cause__ or error.__context__
    return None


def _avro(found: Any, what: str) -> Any:
    kind = found.schema_type or "AVRO"  # a registry omits the type of Avro schemas
    if kind != "AVRO":
        raise NotAvroError(what, kind=str(kind))
    return json.loads(found.schema_str)


def registry(cluster: Cluster, settings: Mapping[str, str | int] | None = None) -> JudgingRegistry:
    """Return the registry to use: the server at the ``url`` of settings, else a topic."""
    if settings and settings.get("url"):
        return RegistryServer(settings)
    return SchemaRegistry(cluster)


class Outage:
    """Tracks whether a server answers.

    Args:
        server: What it is, as people are told.
        is_away: Whether a fault says that it gives no answer.
    """

    def __init__(self, server: str, is_away: Callable[[Exception], bool]) -> None:
        self._server, self._is_away = server, is_away
        self.has_answered = False
        """Whether it has ever answered, even with an error."""
        self.failure_count = 0
        """How many requests got no answer."""
        self.told = ""
        """Why the last request got no answer; "" if it got one."""

    def ask(self, question: Callable[[], T], *, is_patient: bool) -> T:
        """Return the answer to a request.

        If the server does not answer, the request is retried for up to `WAIT_S` if it is patient,
        or if the server has never answered. Other requests fail at once; the caller retries them.

        Args:
            question: Asks the server.
            is_patient: Whether nothing goes on without the answer.

        Raises:
            Exception: What the question raises.
        """
        # tenacity does not fit: each answer, even a refusal, changes what is known of the server.
        until_s = monotonic() + WAIT_S
        while True:
            try:
                found = question()
            except Exception as error:
                if not self._is_away(error):
                    self._answered()
                    raise
                waits = is_patient or not self.has_answered
                self._missed(
                    error, "it is waited for" if waits else "what is known is gone on with"
                )
                if not waits or monotonic() > until_s:
                    raise
                sleep(_AGAIN_S)
            else:
                self._answered()
                return found

    def _missed(self, error: Exception, then: str) -> None:
        self.failure_count += 1
        if not self.told:
            log.warning("%s gives no answer: %s; %s", self._server, clean(error), then)
        self.told = clean(error)

    def _answered(self) -> None:
        if self.told:
            log.warning("%s answers again", self._server)
        self.has_answered, self.told = True, ""
