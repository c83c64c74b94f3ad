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


class Delegate(Protocol):
    """Another implementation of HTTP that answers one request, of which it is fed the bytes.

    It calls `ServerConnection.delegate_is_done` at the end of its answer.
    """

    __slots__ = ()

    def take(self, data: bytes) -> None:
        """Take the head, then any number of pieces of the body as it is framed on the wire."""
        ...

    def has_begun(self) -> bool:
        """Say whether anything of an answer has been sent."""
        ...

    def client_left(self, error: Exception | None) -> None:
        """Stop: the connection is gone."""
        ...

    def client_is_slow(self) -> None:
        """Hold back: more has been written than the client reads."""
        ...

    def client_keeps_up(self) -> None:
        """Go on."""
        ...
