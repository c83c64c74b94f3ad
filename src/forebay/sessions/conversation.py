"""The history of a session, and how much of it a model is sent.

The rule: the system prompt and the newest prompt are always sent whole; before them go as many of
the latest completed turns as fit, each whole (its messages and its answer), none left out between.
What does not fit is left out, oldest first, and sent again should the context grow. Turns
that failed or were cancelled leave nothing behind.

What fits is `context - reserve`: the model's context in tokens, as its nodes report it, less what
is kept for the answer (the session's own limit, else a quarter; never more than half). Tokens are
counted by bytes: by the ratio that the node's own counts of earlier turns gave, else one token for
three bytes, which is on the safe side for English and about right for Japanese. A prompt is
refused outright (413) only where even five bytes a token would not fit. Beside the context there
are hard bounds of bytes and turns, because a session is held in memory: what is beyond those is
forgotten.

Cost: one pass over what is sent. Pure; knows no node and no clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONTEXT_TOKENS_UNKNOWN = 8192
"""Assumed if no node reports what fits: most models of today take at least that much."""
TURNS_MAX = 200
HISTORY_BYTES_MAX = 524_288
TOKENS_PER_BYTE_SAFE = 1 / 3
TOKENS_PER_BYTE_LEAST = 1 / 5
TOKENS_PER_BYTE_MIN, TOKENS_PER_BYTE_MAX = 1 / 6, 1.0
LEARN_BYTES_MIN = 1024
TOKENS_PER_MESSAGE = 8
"""What a chat template adds around each message."""


class Message(Struct, frozen=True):
    """One message of a chat, as OpenAI's API has it; sessions speak in text."""

    role: str
    content: str


class CompletedTurn(Struct, frozen=True):
    """A prompt that was answered, and its answer."""

    messages: tuple[Message, ...]
    answer: str

    def whole(self) -> tuple[Message, ...]:
        return (*self.messages, Message("assistant", self.answer))


class ContextBudget(Struct, frozen=True):
    """How many tokens may be sent to the model."""

    context_tokens: int
    answer_tokens: int
    """The session's own limit on an answer; 0 is none."""

    @property
    def tokens(self) -> int:
        """What is left beside the answer."""
        reserve = self.answer_tokens or self.context_tokens // 4
        return self.context_tokens - min(reserve, self.context_tokens // 2)


class Conversation:
    """The system prompt and the turns that are remembered."""

    def __init__(self, system: str | None) -> None:
        self.system = system
        self._forgotten = 0
        self._left_out = 0
        self._turns: deque[CompletedTurn] = deque()
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._tokens_per_byte = TOKENS_PER_BYTE_SAFE

    @property
    def turns(self) -> Sequence[CompletedTurn]:
        """What is remembered, oldest first."""
        return self._turns

    @property
    def dropped(self) -> int:
        """Turns that the model was not sent any more, the last time it was asked."""
        return self._forgotten + self._left_out

    def copy(self) -> Conversation:
        other = Conversation(self.system)
        other._bytes = self._bytes
        other._turns, other._sizes = self._turns.copy(), self._sizes.copy()
        other._tokens_per_byte = self._tokens_per_byte
        return other

    def add(self, turn: CompletedTurn) -> None:
        """Remember a turn, within the hard bounds."""
        size = size_bytes(turn.whole())
        self._turns.append(turn)
        self._sizes.append(size)
        self._bytes += size
        while len(self._turns) > TURNS_MAX or self._bytes > HISTORY_BYTES_MAX:
            self._drop_oldest()

    def learn(self, sent_bytes: int, messages: int, prompt_tokens: int) -> None:
        """Take a node's own count of what was sent as the measure from now on.

        For little text the count depends more on the template than on the text.
        """
        if sent_bytes >= LEARN_BYTES_MIN:
            text_tokens = prompt_tokens - messages * TOKENS_PER_MESSAGE
            measured = text_tokens / sent_bytes
            self._tokens_per_byte = min(max(measured, TOKENS_PER_BYTE_MIN), TOKENS_PER_BYTE_MAX)

    def shortage(self, prompt: Sequence[Message], budget: ContextBudget) -> int:
        """Return what a prompt takes by the most hopeful count if that is too much, else 0.

        With an empty prompt: what the system prompt takes.
        """
        alone = [*self._opening(), *prompt]
        ratio = min(TOKENS_PER_BYTE_LEAST, self._tokens_per_byte)
        needed = _tokens(size_bytes(alone), len(alone), ratio)
        is_too_large = needed > budget.tokens or size_bytes(alone) > HISTORY_BYTES_MAX
        return needed if is_too_large else 0

    def fit(self, prompt: Sequence[Message], budget: ContextBudget) -> list[Message]:
        ratio = self._tokens_per_byte
        always = [*self._opening(), *prompt]
        left = budget.tokens - _tokens(size_bytes(always), len(always), ratio)
        kept: list[CompletedTurn] = []
        for turn, size in zip(reversed(self._turns), reversed(self._sizes), strict=True):
            left -= _tokens(size, len(turn.messages) + 1, ratio)
            if left < 0:
                break
            kept.append(turn)
        self._left_out = len(self._turns) - len(kept)
        history = [message for turn in reversed(kept) for message in turn.whole()]
        return [*self._opening(), *history, *prompt]

    def history(self) -> list[Message]:
        """Return the messages of all turns, oldest first."""
        return [message for turn in self._turns for message in turn.whole()]

    def _opening(self) -> list[Message]:
        return [Message("system", self.system)] if self.system else []

    def _drop_oldest(self) -> None:
        self._turns.popleft()
        self._bytes -= self._sizes.popleft()
        self._forgotten += 1


def size_bytes(messages: Iterable[Message]) -> int:
    """Return how many bytes of text messages hold."""
    return sum(len(message.content.encode("utf-8", "replace")) for message in messages)


def _tokens(bytes_: int, messages: int, ratio: float) -> int:
    return int(bytes_ * ratio) + messages * TOKENS_PER_MESSAGE
