"""``make image-facts``: sizes of the images, and how long each role needs until it is ready.

From Docker's making the container to /readyz; the tape lies in its topic, and the roles before are
at work.
"""

import sys
from contextlib import closing
from datetime import UTC, datetime
from http.client import HTTPConnection
from time import sleep

from tests.containers.demo import Demo
from tests.containers.engine import KAFKA_TAG, TAG, docker, make

ROLES = ("ingest", "sweep-trades", "sweep-totals", "upstream", "downstream", "spark")
PORT = 9464


def inspected(name: str, what: str) -> str:
    return docker("inspect", "--format", what, name).stdout.strip()


def ready(host: str) -> bool:
    with closing(HTTPConnection(host, PORT, timeout=5.0)) as asking:
        try:
            asking.request("GET", "/readyz")
            return asking.getresponse().status == 200
        except OSError:
            return False


def seconds_to_ready(demo: Demo, role: str) -> float:
    demo.up(role, **({role: 1} if role in {"upstream", "downstream"} else {}))
    (name,) = demo.containers(role)
    made = datetime.fromisoformat(inspected(name, "{{.Created}}"))
    host = inspected(name, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
    while not ready(host):
        if inspected(name, "{{.RestartCount}}") != "0":
            sys.exit(f"{role} does not stay: {docker('logs', name).stderr}")
        sleep(0.02)
    return (datetime.now(UTC) - made).total_seconds()


def main() -> None:
    make("image", {"TAG": TAG})
    make("kafka-image", {"TAG": TAG, "KAFKA_TAG": KAFKA_TAG})
    for tag in (TAG, KAFKA_TAG):
        print(f"{tag.partition(':')[0]:14} {int(inspected(tag, '{{.Size}}')) / 1e6:6.0f} MB")
    demo = Demo(image=TAG, kafka_image=KAFKA_TAG)
    demo.environ["TICKER_SECONDS"] = "1"
    try:
        demo.up("kafka-1")
        demo.await_ready("kafka-1")
        for once in ("topic", "deploy", "ticker"):
            demo.compose("run", "--rm", "-T", "--no-deps", once)
        for role in ROLES:
            print(f"{role:14} {seconds_to_ready(demo, role):6.1f} s", flush=True)
    finally:
        demo.down()


if __name__ == "__main__":
    main()
