"""A prompt as a chain of hashes: equal as far as prompts are equal, and no further."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.prefixes import PARTS_MAX
from forebay.relay.fields import prompt_tokens
from forebay.relay.prefix import (
    BLOCK_BYTES,
    BYTES_MAX,
    BYTES_MIN,
    NO_PREFIX,
    Prefix,
    PrefixHasher,
)

HASHER = PrefixHasher(b"key")
LONG = "The forebay is the still water above the turbines. " * 50


def read(body: bytes, model: str = "m", hasher: PrefixHasher = HASHER, tenant: str = "") -> Prefix:
    return hasher.read(tenant, model, body, prompt_tokens(body))


def chain(model: str = "m", **body: Any) -> tuple[int, ...]:
    return read(json.dumps(body).encode(), model)[0]


def messages(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user" if n % 2 else "system", "content": t} for n, t in enumerate(texts)]


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Return how many leading hashes two chains have in common."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


texts = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=150)


@given(said=texts, more=texts)
def test_a_conversation_that_goes_on_keeps_its_chain(said: list[str], more: list[str]) -> None:
    before = chain(messages=messages(LONG, *said))
    after = chain(messages=messages(LONG, *said, *more))
    assert shared(before, after) == len(before) <= len(after) <= PARTS_MAX


@given(said=texts, at=st.integers(0, 149))
def test_nothing_is_shared_behind_the_first_difference(said: list[str], at: int) -> None:
    at %= len(said)
    other = [*said[:at], said[at] + "!", *said[at + 1 :]]
    one, two = chain(messages=messages(LONG, *said)), chain(messages=messages(LONG, *other))
    assert not set(one[shared(one, two) :]) & set(two)
    assert shared(one, two) <= 1 + at


def test_instructions_and_tools_come_before_the_messages() -> None:
    said = messages("hello", "you")
    plain = chain(system=LONG, tools=[1], messages=said)
    assert shared(plain, chain(tools=[1], messages=said, system=LONG)) == len(plain) == 3
    assert shared(plain, chain(system=LONG, tools=[2], messages=said)) == 0
    assert shared(plain, chain(system=LONG, tools=[1], messages=messages("bye"))) == 1


def test_a_plain_prompt_is_cut_into_blocks() -> None:
    one, two = chain(prompt=LONG + "one"), chain(prompt=LONG + "two")
    assert shared(one, two) == len(one) - 1 == len(json.dumps(LONG)) // BLOCK_BYTES
    assert len(chain(prompt=LONG * 50)) == PARTS_MAX
    assert chain(input=LONG) == chain(prompt=LONG)


def test_items_of_a_responses_call_are_its_messages() -> None:
    items = messages(LONG, "a", "b")
    assert shared(chain(input=items), chain(input=[*items, *messages("c")])) == 3


def test_models_fleets_and_tenants_share_no_hash() -> None:
    body = json.dumps({"messages": messages(LONG, "hi")}).encode()
    chains = [read(body), read(body, "n"), read(body, hasher=PrefixHasher(b"k"))]
    chains += [read(body, tenant="a"), read(body, "am")]
    assert len({one for hashes, _ in chains for one in hashes}) == 10


def test_the_sizes_are_tokens_of_the_parts() -> None:
    hashes, sizes = read(json.dumps({"messages": messages(LONG, "hi")}).encode())
    assert len(hashes) == len(sizes)
    assert sizes[0] > 600 > 20 > sizes[1] > 5


def picture(seed: int, size: int = 90_000) -> dict[str, Any]:
    data = b64encode(random.Random(seed).randbytes(size)).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def test_a_picture_is_in_the_hash_but_not_in_the_size() -> None:
    def asked(seed: int) -> bytes:
        content = [{"type": "text", "text": LONG}, picture(seed)]
        said = [{"role": "user", "content": content}, *messages("a cat", "sure?")]
        return json.dumps({"model": "m", "messages": said}).encode()

    body = asked(1)
    hashes, sizes = read(body)
    assert len(LONG) // 4 <= sizes[0] <= prompt_tokens(body) < 2_500
    assert sum(sizes) <= prompt_tokens(body)
    assert not set(hashes) & set(read(asked(2))[0])


@given(st.lists(st.sampled_from([0, 300, 3_000, 6_000, 9_000, 20_000]), min_size=1, max_size=9))
def test_the_parts_have_no_more_tokens_than_the_prompt(pictures: list[int]) -> None:
    said = [{"role": "user", "content": [picture(7, size)]} for size in pictures]
    body = json.dumps({"messages": [*messages(LONG), *said, *messages(LONG)]}).encode()
    assert sum(read(body)[1]) <= prompt_tokens(body)


def test_a_list_of_many_small_things_is_not_looked_at_one_by_one() -> None:
    for name in ("messages", "input"):
        body = json.dumps({name: [0] * 50_000}, separators=(",", ":")).encode()
        assert BYTES_MIN < len(body) < BYTES_MAX
        assert read(body) == NO_PREFIX


def test_what_is_too_short_or_too_long_or_no_prompt_has_none() -> None:
    too_long = json.dumps({"prompt": "x" * BYTES_MAX}).encode()
    odd = [b"{}", b"[]" + b" " * 3000, b'{"messages":7%s}' % (b" " * 3000), b"\xff" * 3000]
    for body in (too_long, *odd):
        assert read(body) == NO_PREFIX
