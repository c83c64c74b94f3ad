"""The users that are remembered: all with something unfinished, and some of the idle."""

from __future__ import annotations

from forebay.core.records import User


class Users:
    """Users with something unfinished, and a bounded memory of idle ones.

    An idle user whose counters are all at or below the clock is the same as a new one and is
    forgotten at once. The others are ahead of the clock by what they were served last; at most
    `idle_max` of those are kept, the longest idle are forgotten first: what such a user gains is
    at most one charge, and memory stays bounded under any number of invented names. Nothing is
    kept of an idle user's conversations.
    """

    def __init__(self, idle_max: int) -> None:
        self.idle_max = idle_max
        self.known: dict[str, User] = {}
        self._idle: dict[str, None] = {}  # longest idle first

    def arrive(self, name: str) -> User:
        """Return the user of a newly accepted entry, counting it as unfinished."""
        user = self.known.get(name)
        if user is None:
            user = self.known[name] = User(name)
        elif user.unfinished == 0:
            del self._idle[name]
        user.unfinished += 1
        return user

    def leave(self, user: User) -> None:
        """Count one entry as ended; forget the user, or remember it among the idle."""
        user.unfinished -= 1
        if user.unfinished:
            return
        accounts = user.accounts
        for queue, account in list(accounts.items()):
            if account.counter <= queue.clock - queue.burst:
                del accounts[queue]
            else:
                account.turns = None
        if accounts:
            self._idle[user.name] = None
            while len(self._idle) > self.idle_max:
                name = next(iter(self._idle))
                del self._idle[name], self.known[name]
        else:
            del self.known[user.name]
