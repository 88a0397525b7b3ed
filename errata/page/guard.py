"""Who may ask the page for what: hosts, tokens, writes; and the headers of every response.

Pages of other sites can make a browser send requests to this one, also to an address that is only
reachable from its machine. So requests need a known ``Host``; those that write need a header that
other sites can't set. What a response holds is never taken for a script.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE, TOKEN, OURS = "errata_token", "token", "x-errata"
"""The cookie and the query field of the token, and the header of requests that write."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types errata"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Refuses requests, and adds the headers of `HEADERS` to every response.

    Args:
        app: What answers the others.
        hosts: Names that the page is asked by; empty: any, since a token is needed.
        token: The token that each request needs; "": none.
        allow_writes: Whether requests may write.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], token: str, allow_writes: bool
    ) -> None:
        self.app, self.hosts, self.token = app, frozenset(hosts), token
        self.allow_writes = allow_writes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope)
        await (self.app if refusal is None else refusal)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = _host(headers.get("host", ""))
        if self.hosts and host not in self.hosts:
            return refused(421, f"the page is not asked for as {host!r}; see --host")
        if self.token:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
            if hmac.compare_digest(query.pop(TOKEN, "").encode(), self.token.encode()):
                return self._with_cookie(scope, query)
            if not self._knows(headers):
                return refused(401, "needs the token that was printed when the page was started")
        if scope["method"] in {"GET", "HEAD"}:
            return None
        if not self.allow_writes:
            return refused(403, "the page is read-only; start it with --allow-writes")
        if OURS not in headers:
            return refused(403, f"a request that writes needs the header {OURS}")
        return None

    def _knows(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            try:
                cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
            except CookieError:
                cookie = None
            given = "" if cookie is None else cookie.value
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _with_cookie(self, scope: Scope, query: dict[str, str]) -> Response:
        """Return a redirection to the address without its token, which the cookie has then."""
        path = scope["path"] + (f"?{urlencode(query)}" if query else "")
        response = RedirectResponse(path if not path.startswith("//") else "/", status_code=303)
        response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
        return response


def refused(status: int, text: str) -> Response:
    """Return a response that says why there is none."""
    return JSONResponse({"error": text}, status_code=status)


def _host(header: str) -> str:
    """Return the name in a ``Host`` header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()


def hosts_of(host: str) -> set[str]:
    """Return the names by which a page that listens on a loopback address is asked for.

    Example:
        >>> sorted(hosts_of("127.0.0.1")), hosts_of("0.0.0.0")
        (['127.0.0.1', '::1', 'localhost'], set())
    """
    return {"localhost", "127.0.0.1", "::1", host} if is_loopback(host) else set()


def is_loopback(host: str) -> bool:
    """Return whether a host can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
