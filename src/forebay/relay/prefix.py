"""A prompt as a chain of hashes, by which the core knows which node has computed its beginning.

The parts come as an engine sees them: instructions and tools, then message by message; of a plain
prompt, blocks of 512 bytes. Each hash stands for everything up to there. Where there are many
messages, later ones are taken together, at places that do not move as a conversation grows.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

from forebay.core.prefixes import PARTS_MAX
from forebay.relay.fields import prompt_tokens

BYTES_MIN: Final = 512
"""A shorter prompt is not worth 10 us here. One of this size has about a hundred tokens: 20 ms on
a fast node and a second on a CPU; and conversations begin with such prompts."""
BYTES_MAX: Final = 262_144
"""A longer body is not read again for this."""
COUNTED_BYTES: Final = 32_768
COMMA_BYTES: Final = 12
"""A body of so many bytes with a comma for fewer than so many on average is no conversation, but a
list of many small things, which would take 10 ms to look at one by one."""
BLOCK_BYTES: Final = 512
HASH_BYTES: Final = 8
TOKEN_BYTES: Final = 4
_GROUPS: Final = ((24, 1), (16, 2), (12, 8), (10, 32))
"""So many parts of so many messages each; beyond that nothing is looked at."""

Prefix: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The chain of hashes, and about how many tokens each part has."""
NO_PREFIX: Final[Prefix] = ((), ())


_NOTHING: Final = msgspec.Raw()
_WHOLE: Final = ("system", "instructions", "tools", "input", "prompt")
_DECODER: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(  # of a prompt in any family
    msgspec.defstruct(
        "_Prompt",
        [("messages", list[msgspec.Raw], []), *((name, msgspec.Raw, _NOTHING) for name in _WHOLE)],
        gc=False,
    )
)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


class PrefixHasher:
    """Makes the chains of one fleet: others cannot tell what text is behind one of its hashes.

    Those of two tenants have nothing in common, whatever their texts: who could see that another
    tenant's prompt is cached could find that prompt out by guessing, part by part.
    """

    def __init__(self, key: bytes) -> None:
        """Gateways that share a queue have the same `key`."""
        self._start = sha256(key)

    def read(self, tenant: str, model: str, body: bytes, tokens: int) -> Prefix:
        """Return the chain of a body that has been read; an empty one where it is of no use.

        `tenant`: whose caches it may use, a name without NUL.
        `tokens`: how many the whole is taken for; its parts have no more together.
        """
        size = len(body)
        if not BYTES_MIN <= size <= BYTES_MAX:
            return NO_PREFIX
        if size > COUNTED_BYTES and body.count(b",") * COMMA_BYTES > size:
            return NO_PREFIX
        try:
            prompt = _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return NO_PREFIX  # not what it should be: its node will say so
        state = self._start.copy()
        state.update(f"{tenant}\0{model}".encode(errors="replace"))
        has_base64 = tokens < size // TOKEN_BYTES
        hashes: list[int] = []
        sizes: list[int] = []
        for part in _parts(prompt):
            state.update(part)
            hashes.append(int.from_bytes(state.digest()[:HASH_BYTES], "little"))
            sizes.append(len(part) // TOKEN_BYTES)
            if has_base64:
                sizes[-1] = min(prompt_tokens(part), tokens)
                tokens -= sizes[-1]
        return tuple(hashes), tuple(sizes)


def _parts(prompt: Any) -> list[bytes]:
    """Return the parts of a prompt in the order in which an engine sees them, not too many."""
    begins = [prompt.system, prompt.instructions, prompt.tools]
    given = [bytes(one) for one in begins if one is not _NOTHING]
    parts = [b"".join(given)] if given else []
    messages = prompt.messages or _listed(bytes(prompt.input))
    if messages:
        return parts + _grouped(messages)
    text = bytes(prompt.prompt) or bytes(prompt.input)
    room = (PARTS_MAX - len(parts)) * BLOCK_BYTES
    return parts + [
        text[at : at + BLOCK_BYTES] for at in range(0, min(len(text), room), BLOCK_BYTES)
    ]


def _listed(text: bytes) -> list[msgspec.Raw]:
    """Return the items of a list of messages; nothing for a text."""
    return _LIST.decode(text) if text[:1] == b"[" else []


def _grouped(messages: list[msgspec.Raw]) -> list[bytes]:
    """Return one part for each of the first messages, then for several together."""
    alone = _GROUPS[0][0]
    parts = list(map(bytes, messages[:alone]))
    at = alone
    if len(messages) <= alone:
        return parts
    for count, size in _GROUPS[1:]:
        for _ in range(count):
            group = messages[at : at + size]
            if len(group) < size:  # it may still grow, and would then be another part
                return parts
            parts.append(b"".join(map(bytes, group)))
            at += size
    return parts
