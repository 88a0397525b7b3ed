"""A registry in front of another one, which takes nothing new: as roles without rights see it."""

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError


class ReadOnly:
    """Passes everything on but registrations, as a context manager.

    Args:
        url: Of the registry behind it.
    """

    def __init__(self, url: str) -> None:
        refused = self.refused = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._pass_on(None)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.partition("?")[0].endswith("/versions"):
                    refused.append(self.path)
                    self._answer(403, b'{"error_code": 40301, "message": "not allowed"}')
                else:
                    self._pass_on(body)

            def _pass_on(self, body: bytes | None) -> None:
                request = urllib.request.Request(url + self.path, body, method=self.command)
                request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                try:
                    with urllib.request.urlopen(request, timeout=30) as answer:
                        self._answer(answer.status, answer.read())
                except HTTPError as error:
                    with error:
                        self._answer(error.code, error.read())

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "ReadOnly":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
