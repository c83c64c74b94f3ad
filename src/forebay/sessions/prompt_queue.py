"""One session's FIFO with the count that bounds it, and the prompts that have ended.

A prompt is counted from its admission until it leaves the queue, at the head: so one that was
removed or has missed its deadline keeps its place until its turn comes. Were the place free at
once, a client could add and remove for ever and bypass the bound. Branches wait in the same queue
and are not counted; they have a bound of their own.

Everything here is pure and synchronous: a check and the place it grants are one step, so that two
prompts can never both take the last place. O(1) except `withdraw` and the listings.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from forebay.relay.problem import Problem
from forebay.sessions.conversation import HISTORY_BYTES_MAX, TURNS_MAX
from forebay.sessions.errors import PromptQueueFull, SessionRejected
from forebay.sessions.prompt import Prompt

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Iterator

    from forebay.sessions.conversation import Conversation


BRANCHES_MAX = 16


class Branch:
    """A caller that waits for its turn to copy the conversation."""

    __slots__ = ("copied",)

    def __init__(self, copied: Future[Conversation]) -> None:
        self.copied = copied
        """Receives the copy; the caller may cancel it at any time."""

    @property
    def is_over(self) -> bool:
        return self.copied.done()

    def give(self, conversation: Conversation) -> None:
        if not self.copied.done():
            self.copied.set_result(conversation)

    def reject(self, error: SessionRejected) -> None:
        if not self.copied.done():
            self.copied.set_exception(error)


QueueEntry: TypeAlias = Prompt | Branch


class PromptQueue:
    """Prompts and branches in the order they were admitted."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self.pending = 0
        self._branches = 0
        self._entries: deque[QueueEntry] = deque()

    def admit(self, prompt: Prompt, limit: int) -> None:
        """Append a prompt; raises PromptQueueFull, and then nothing has changed.

        `limit` prompts may be pending, the running one included; 0 is no limit.
        """
        if limit and self.pending >= limit:
            raise PromptQueueFull(self._session_id, limit, self.pending)
        self.restore(prompt)

    def restore(self, prompt: Prompt) -> None:
        """Append a prompt that was admitted before a restart, whatever the limit is now."""
        self.pending += 1
        self._entries.append(prompt)

    def admit_branch(self, branch: Branch) -> None:
        """Append a branch; raises SessionRejected where too many wait already."""
        if self._branches >= BRANCHES_MAX:
            words = f"{BRANCHES_MAX} branches of this session are already waiting"
            raise SessionRejected(Problem("branch_queue_full", words))
        self._branches += 1
        self._entries.append(branch)

    def withdraw(self, entry: QueueEntry) -> None:
        """Remove one that was not stored or whose caller has left; may be called twice."""
        if entry in self._entries:
            self._entries.remove(entry)
            self._discount(entry)

    def drain(self) -> QueueEntry | None:
        """Drop ended entries from the front, and return the head."""
        while self._entries and self._entries[0].is_over:
            self._discount(self._entries.popleft())
        return self._entries[0] if self._entries else None

    def prompts(self) -> Iterator[Prompt]:
        """Return the prompts that have no outcome yet, in order."""
        for entry in tuple(self._entries):
            if isinstance(entry, Prompt) and not entry.is_over:
                yield entry

    def branches(self) -> Iterator[Branch]:
        for entry in tuple(self._entries):
            if isinstance(entry, Branch) and not entry.is_over:
                yield entry

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, not even ended entries."""
        return not self._entries

    def _discount(self, entry: QueueEntry) -> None:
        if isinstance(entry, Branch):
            self._branches -= 1
        else:
            self.pending -= 1


class EndedPrompts:
    """The last TURNS_MAX prompts that have ended; old ones lose their text first."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, Prompt] = OrderedDict()
        self._texts: deque[tuple[Prompt, int]] = deque()
        self._bytes = 0

    def add(self, prompt: Prompt) -> None:
        """Remember a prompt that has its result; its messages are no longer needed."""
        prompt.messages = ()
        self._ended[prompt.id] = prompt
        if len(self._ended) > TURNS_MAX:
            self._ended.popitem(last=False)
        result = prompt.result
        if result is not None and result.text:
            size = len(result.text.encode("utf-8", "replace"))
            self._texts.append((prompt, size))
            self._bytes += size
        while self._bytes > HISTORY_BYTES_MAX and len(self._texts) > 1:
            old, size = self._texts.popleft()
            self._bytes -= size
            if old.result is not None:
                old.result = replace(old.result, text=None)

    def get(self, prompt_id: str) -> Prompt | None:
        return self._ended.get(prompt_id)
