"""A Spark session that outlives the commands it is lent to."""

from typing import Any


class Kept:
    """The session of all tests, which no command may end."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        pass
