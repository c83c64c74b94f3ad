"""Free tokens in a node's key-value cache: the last reading, less what was started since.

A request may start where its prompt and the answer expected of it fit, or where nothing runs: so
one that is larger than anything ever seen free is not kept out for ever. What does not fit keeps
its turn: nothing of the same class or a lower one starts on the node before it. What ends gives
back only what was started since the same reading; the rest is in the next one, seconds later.
"""

from __future__ import annotations


class CacheRoom:
    """The room of one node, as of one reading.

    >>> room = CacheRoom(1000, reading=1)
    >>> room.start("a", 600.0); room.left_tokens
    400.0
    >>> room.end("a"); room.end("of an earlier reading"); room.left_tokens
    1000.0
    """

    def __init__(self, free_tokens: int, reading: int) -> None:
        self.left_tokens = float(free_tokens)
        self.reading = reading
        self._started: dict[str, float] = {}

    def start(self, ticket_id: str, tokens: float) -> None:
        self._started[ticket_id] = tokens
        self.left_tokens -= tokens

    def end(self, ticket_id: str) -> None:
        self.left_tokens += self._started.pop(ticket_id, 0.0)
