"""A real schema registry of the API that Kafka's users know: Apicurio, in memory."""

import json
import shutil
import socket
import subprocess
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from time import monotonic, sleep
from urllib.error import HTTPError, URLError

from errata.topics.java import Jars, cache_folder, class_path

VERSION = "3.3.3"
ARCHIVE = Jars(
    f"apicurio-registry-{VERSION}",
    (("io.apicurio", "apicurio-registry-app", VERSION),),
    1,
    archive="all",
)
LIMIT_S = 120.0

# Java goes down with its parent, however that dies: the end of its pipe ends it.
_SHIM = 'exec 3<&0; "$@" </dev/null 3<&- & java=$!; read -r _ <&3; kill -KILL $java; wait $java'


class Apicurio:
    """A registry that lives no longer than its parent, as a context manager.

    Args:
        java: A `java` of release 21 or later.
    """

    def __init__(self, java: Path) -> None:
        self.java = java
        self.folder = Path(tempfile.mkdtemp(prefix="errata-apicurio-"))

    @property
    def url(self) -> str:
        """What SCHEMA_REGISTRY_URL has to be."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def __enter__(self) -> "Apicurio":
        app = unpacked(self.java)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}"]
        options += ["-Dquarkus.management.host=127.0.0.1", "-Dquarkus.management.port=0"]
        options += ["-Dquarkus.log.level=WARN", f"-Djava.io.tmpdir={self.folder}"]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", _SHIM, "sh", self.java, *options, "-jar", app / "quarkus-run.jar"],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        deadline = monotonic() + LIMIT_S
        while not self._answers():
            told = (self.folder / "log").read_text(errors="replace")[-2_000:]
            assert self.process.poll() is None, told
            assert monotonic() < deadline, told
            sleep(0.2)
        self.ask("PUT", "config", {"compatibility": "BACKWARD"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, method: str, path: str, body: object = None) -> object:
        """Send one request, past all of Errata's own code."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, method=method)
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            error.add_note(error.read().decode())
            raise

    def register(self, subject: str, schema: object) -> int:
        """Register an Avro schema; return its id."""
        body = {"schema": json.dumps(schema)}
        return int(self.ask("POST", f"subjects/{subject}/versions", body)["id"])  # type: ignore

    def subjects(self) -> list[str]:
        """Return all subjects."""
        return list(self.ask("GET", "subjects"))

    def _answers(self) -> bool:
        try:
            return self.subjects() == []
        except (URLError, ConnectionError):
            return False


def unpacked(java: Path) -> Path:
    """Return the folder of the application, in the cache of all jars."""
    (archive,) = class_path(java, ARCHIVE)
    app = cache_folder() / ARCHIVE.name / "app"
    if not app.exists():
        with tempfile.TemporaryDirectory(dir=app.parent) as folder:
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            try:
                Path(folder).rename(app)
            except OSError:
                assert app.exists()  # another process was faster
            else:
                Path(folder).mkdir()  # for its owner to delete
    return app
