"""A schema registry server, reached by the standard Confluent client.

While it does not answer, a process waits at startup and continues later; an `Outage` logs both.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from time import monotonic, sleep
from typing import Any, TypeVar
from weakref import finalize

from errata.schemas.compatible import incompatibilities
from errata.topics.cluster import Cluster, ClusterError
from errata.topics.refused import RefusedError
from errata.topics.registry import (
    COMPATIBLE,
    INCOMPATIBLE,
    NEW,
    PROTOBUF,
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
            ClusterError: If the server does not answer, or refuses the schema, for example one
                that old readers can't read.
        """
        text = json.dumps(schema)
        if (subject, text) not in self._ids:
            schema_id, what = self._lookup(subject, text), f"the schema of subject '{subject}'"
            if schema_id is None:
                avro = self._avro(text)
                schema_id = self._ask(what, lambda: self._client.register_schema(subject, avro))
            if schema_id is None:
                raise ClusterError(
                    f"the schema registry can't register {what}: it answers 404 (not found); "
                    "correct SCHEMA_REGISTRY_URL, which may lack a path"
                )
            self._ids[subject, text] = int(schema_id)
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
        differences = incompatibilities(schema, latest[1]) or incompatibilities(latest[1], schema)
        reasons = tuple(differences) or ("an older version of the subject does not fit",)
        return Verdict(subject, INCOMPATIBLE, self._level(subject), reasons)

    def _level(self, subject: str) -> str:
        """Return the compatibility level of a rejecting subject: its own, else the global one.

        Some servers return NONE for a subject that has no level of its own.
        """
        what, client = f"the compatibility level of subject '{subject}'", self._client
        level = str(self._ask(what, lambda: client.get_compatibility(subject)) or "NONE")
        return level if level != "NONE" else str(self._ask(what, client.get_compatibility) or "")

    def _lookup(self, subject: str, text: str) -> int | None:
        """Return the id of a schema if it is registered under a subject."""
        what, avro = f"the schema of subject '{subject}'", self._avro(text)
        registered = self._ask(what, lambda: self._client.lookup_schema(subject, avro))
        return None if registered is None else int(registered.schema_id)

    def _avro(self, text: str) -> Any:
        return self._library.Schema(text, "AVRO")

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema."""
        if schema_id not in self._schemas:
            what = f"schema {schema_id}"
            get = self._client.get_schema
            registered = self._ask(what, lambda: get(schema_id), is_patient=False)
            if registered is None:
                raise UnknownSchemaError(schema_id, registry="the schema registry")
            self._schemas[schema_id] = self._content(registered, schema_id, what)
        return self._schemas[schema_id]

    def latest(self, subject: str) -> tuple[int, Any] | None:
        """Return the id and the schema last registered under a subject; None if there is none."""
        what = f"the schema of subject '{subject}'"
        version = self._ask(what, lambda: self._client.get_latest_version(subject))
        if version is None:
            return None
        schema_id = int(version.schema_id)
        return schema_id, self._content(version.schema, schema_id, what)

    def _content(self, registered: Any, schema_id: int, what: str) -> dict[str, Any]:
        """Return an Avro schema.

        Raises:
            NotAvroError: If it is of another kind; it has the texts of a Protobuf schema.
        """
        if registered.schema_type == PROTOBUF:
            text, imports = str(registered.schema_str), self._imports(registered)
            raise NotAvroError(what, kind=PROTOBUF, text=text, imports=imports, schema_id=schema_id)
        schema: dict[str, Any] = _avro(registered, what)
        return schema

    def _imports(self, registered: Any) -> dict[str, str]:
        """Return the texts of the schemas that one refers to, by name, but for unknown ones."""
        found: dict[str, str] = {}
        pending = list(registered.references or ())
        while pending:
            each = pending.pop()
            if each.name in found:
                continue
            what = f"version {each.version} of subject '{each.subject}'"
            get = partial(self._client.get_version, each.subject, each.version)
            version = self._ask(what, get, is_patient=False)
            if version is not None:
                found[each.name] = str(version.schema.schema_str)
                pending += version.schema.references or ()
        return found

    def _ask(self, what: str, request: Callable[[], Any], *, is_patient: bool = True) -> Any:
        """Return the answer; None if the server answers "not found".

        Only a process that ingests records may be impatient: it continues without the answer.
        """
        try:
            return self.outage.ask(lambda: self._with_tls_check(request), is_patient=is_patient)
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

    def _with_tls_check(self, request: Callable[[], Any]) -> Any:
        """Return the answer; raise for a server with which no TLS handshake has ever succeeded."""
        try:
            return request()
        except self._unreachable as error:
            fault = _tls_fault(error)
            if fault is None or self.outage.has_answered:
                raise
            raise RefusedError(
                f"the TLS handshake with the schema registry failed: {clean(fault)}; check the "
                "schema_registry.ssl.* settings, and https or http in SCHEMA_REGISTRY_URL"
            ) from None

    def _is_away(self, error: Exception) -> bool:
        status = getattr(error, "http_status_code", None)
        return isinstance(error, self._unreachable) or status in _PROXY_ALONE

    def _away(self, what: str, error: Exception) -> RegistryAwayError:
        return RegistryAwayError(
            f"the schema registry did not answer a request for {what}: {clean(error)}; start it, "
            "or correct SCHEMA_REGISTRY_URL"
        )


def _tls_fault(error: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS error behind an error, if one side did not accept the other."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, _CUT):
            return error
        error = error.__cause__ or error.__context__
    return None


def _avro(registered: Any, what: str) -> Any:
    kind = registered.schema_type or "AVRO"  # a registry omits the type of Avro schemas
    if kind != "AVRO":
        raise NotAvroError(what, kind=str(kind), text=str(registered.schema_str))
    try:
        return json.loads(registered.schema_str)
    except (ValueError, TypeError, RecursionError):
        raise NotAvroError(what, kind="AVRO, with a text that is not JSON") from None


def registry(cluster: Cluster, settings: Mapping[str, str | int] | None = None) -> JudgingRegistry:
    """Return the registry to use: the server at the ``url`` of settings, else a topic."""
    if settings and settings.get("url"):
        return RegistryServer(settings)
    return SchemaRegistry(cluster)


class Outage:
    """Tracks whether a server answers.

    Args:
        server: Its name in log lines.
        is_away: Returns whether an error means that the server did not answer.
    """

    def __init__(self, server: str, is_away: Callable[[Exception], bool]) -> None:
        self._server, self._is_away = server, is_away
        self.has_answered = False
        """Whether it has ever answered, even with an error."""
        self.failure_count = 0
        """How many requests got no answer."""
        self.last_error = ""
        """Why the last request got no answer; "" if it got one."""

    def ask(self, request: Callable[[], T], *, is_patient: bool) -> T:
        """Return the answer to a request.

        If the server does not answer, the request is retried for up to `WAIT_S` if it is patient,
        or if the server has never answered. Other requests fail at once; the caller retries them.

        Args:
            request: Sends the request and returns the answer.
            is_patient: Whether the caller can't continue without the answer.

        Raises:
            Exception: The error of the request.
        """
        # tenacity does not fit: each answer, even a refusal, changes what is known of the server.
        until_s = monotonic() + WAIT_S
        while True:
            try:
                answer = request()
            except Exception as error:
                if not self._is_away(error):
                    self._answered()
                    raise
                retries = is_patient or not self.has_answered
                self._missed(
                    error, "waiting for it" if retries else "continuing with the known schemas"
                )
                if not retries or monotonic() > until_s:
                    raise
                sleep(_AGAIN_S)
            else:
                self._answered()
                return answer

    def _missed(self, error: Exception, then: str) -> None:
        self.failure_count += 1
        if not self.last_error:
            log.warning("%s does not answer: %s; %s", self._server, clean(error), then)
        self.last_error = clean(error)

    def _answered(self) -> None:
        if self.last_error:
            log.warning("%s answers again", self._server)
        self.has_answered, self.last_error = True, ""
