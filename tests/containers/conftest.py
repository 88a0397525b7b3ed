"""The images, built once."""

import pytest

from tests.containers.engine import KAFKA_TAG, TAG, make, require_engine


@pytest.fixture(scope="session")
def image() -> str:
    require_engine()
    make("image", {"TAG": TAG})
    return TAG


@pytest.fixture(scope="session")
def kafka_image(image: str) -> str:
    make("kafka-image", {"TAG": image, "KAFKA_TAG": KAFKA_TAG})
    return KAFKA_TAG
