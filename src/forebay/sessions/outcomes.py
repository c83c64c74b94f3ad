"""How the latest turns of a session ended, for whoever asks; bounded in number and in bytes."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.sessions.conversation import HISTORY_BYTES_MAX, TURNS_MAX

if TYPE_CHECKING:
    from forebay.sessions.prompt import Prompt


class Outcomes:
    """The last TURNS_MAX prompts that have ended; old ones lose their text first."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, Prompt] = OrderedDict()
        self._texts: deque[tuple[Prompt, int]] = deque()
        self._bytes = 0

    def add(self, prompt: Prompt) -> None:
        """Remember a prompt that has its result; what it said is no longer needed."""
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
        """Return a prompt that has ended, if it is remembered."""
        return self._ended.get(prompt_id)
