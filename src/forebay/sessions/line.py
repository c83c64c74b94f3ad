"""One session's FIFO, and the count that bounds it.

A prompt takes a place in the count when it is admitted and gives it back when it leaves the line,
at the head: so one that was removed or has run out of time keeps its place until its turn comes.
Were the place free at once, a client could add and remove for ever and bypass the bound. Branches
stand in the same line and are not counted; they have a bound of their own.

Everything here is pure and synchronous: a check and the place it grants are one step, so that two
prompts can never both take the last place. O(1) but for `withdraw` and the listings.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from forebay.relay.problem import Problem
from forebay.sessions.prompt import Prompt
from forebay.sessions.refusals import PromptQueueFull, Refusal

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Iterator

    from forebay.sessions.conversation import Conversation

BRANCHES_MAX = 16


class Branch:
    """One who waits for its turn to copy the conversation."""

    __slots__ = ("copied",)

    def __init__(self, copied: Future[Conversation]) -> None:
        self.copied = copied
        """Where the copy goes; whoever waits for it may cancel it at any time."""

    @property
    def is_over(self) -> bool:
        """Whether it has had its turn, or nobody waits for it any more."""
        return self.copied.done()

    def give(self, conversation: Conversation) -> None:
        """Have its turn."""
        if not self.copied.done():
            self.copied.set_result(conversation)

    def refuse(self, refusal: Refusal) -> None:
        """End without a turn."""
        if not self.copied.done():
            self.copied.set_exception(refusal)


Entry: TypeAlias = Prompt | Branch


class Line:
    """Prompts and branches in the order they were admitted."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self.pending = 0
        self._branches = 0
        self._entries: deque[Entry] = deque()

    def admit(self, prompt: Prompt, limit: int) -> None:
        """Take a prompt in; raises PromptQueueFull, and then nothing has changed.

        `limit` prompts may be pending, the running one included; 0 is no limit.
        """
        if limit and self.pending >= limit:
            raise PromptQueueFull(self._session_id, limit, self.pending)
        self.restore(prompt)

    def restore(self, prompt: Prompt) -> None:
        """Take back a prompt that was admitted before a restart, whatever the limit is now."""
        self.pending += 1
        self._entries.append(prompt)

    def admit_branch(self, branch: Branch) -> None:
        """Take a branch in; raises Refusal where too many wait already."""
        if self._branches >= BRANCHES_MAX:
            words = f"{BRANCHES_MAX} branches of this session wait already"
            raise Refusal(Problem("branch_queue_full", words))
        self._branches += 1
        self._entries.append(branch)

    def withdraw(self, entry: Entry) -> None:
        """Take out one that came to nothing, wherever it stands; may be called twice."""
        if entry in self._entries:
            self._entries.remove(entry)
            self._discount(entry)

    def drain(self) -> Entry | None:
        """Drop what is over from the front, and return the head."""
        while self._entries and self._entries[0].is_over:
            self._discount(self._entries.popleft())
        return self._entries[0] if self._entries else None

    def prompts(self) -> Iterator[Prompt]:
        """Return the prompts that have no outcome yet, in order."""
        for entry in tuple(self._entries):
            if isinstance(entry, Prompt) and not entry.is_over:
                yield entry

    def branches(self) -> Iterator[Branch]:
        """Return the branches that wait, in order."""
        for entry in tuple(self._entries):
            if isinstance(entry, Branch) and not entry.is_over:
                yield entry

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands in it, not even what is over."""
        return not self._entries

    def _discount(self, entry: Entry) -> None:
        if isinstance(entry, Branch):
            self._branches -= 1
        else:
            self.pending -= 1
