"""Who answers the request of a connection."""

from typing import Protocol


class Answering(Protocol):
    """Who is answering a request, and must know when nobody listens any more."""

    __slots__ = ()

    def client_left(self) -> None:
        """Stop: the connection is gone."""
        ...

    def client_is_slow(self) -> None:
        """Hold back: more has been written than the client reads."""
        ...

    def client_keeps_up(self) -> None:
        """Go on."""
        ...
