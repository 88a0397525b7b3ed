"""A door before a registry: TLS, a name and a password, perhaps a certificate of the client."""

import base64
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.parse import urlsplit

HOST = "127.0.0.1"


@contextmanager
def guarded(
    behind: str, folder: Path, *, user_info: str, asks_client: bool = False
) -> Iterator[str]:
    """Run such a door; gives its URL.

    Args:
        behind: URL of the registry.
        folder: Where certificates are, as `tests.kafka.secured.certificates` makes them.
        user_info: ``USER:PASSWORD``.
        asks_client: Whether clients have to show a certificate.
    """
    wanted = f"Basic {base64.b64encode(user_info.encode()).decode()}"

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass()

        do_POST = do_PUT = do_DELETE = do_GET

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
            if self.headers.get("Authorization") != wanted:
                self._answer(401, b'{"error_code": 40101, "message": "Unauthorized"}')
                return
            place = urlsplit(behind)
            request = urllib.request.Request(
                f"{place.scheme}://{place.netloc}{self.path}", body, method=self.command
            )
            for name in ("Content-Type", "Accept"):
                if name in self.headers:
                    request.add_header(name, self.headers[name])
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    self._answer(answer.status, answer.read())
            except HTTPError as error:
                self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that trust nobody."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "broker.pem", folder / "broker.key.pem")
    if asks_client:
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    server = Server((HOST, 0), Door)
    # The handshake is the handler's thread's: one that is never made stops nobody.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"https://{HOST}:{server.server_port}{urlsplit(behind).path}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
