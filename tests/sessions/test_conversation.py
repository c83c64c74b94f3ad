"""How much of a conversation is sent, and what is dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.sessions.conversation import (
    HISTORY_BYTES_MAX,
    TOKENS_PER_BYTE_SAFE,
    TOKENS_PER_MESSAGE,
    TURNS_MAX,
    CompletedTurn,
    ContextBudget,
    Conversation,
    Message,
    size_bytes,
)

TEXTS = st.text(max_size=60)


def said(text: str) -> tuple[Message, ...]:
    return (Message("user", text),)


def with_turns(texts: list[str], system: str | None = None) -> Conversation:
    conversation = Conversation(system)
    for number, text in enumerate(texts):
        conversation.add(CompletedTurn(said(f"{number} {text}"), f"answer {number}"))
    return conversation


def tokens(messages: list[Message]) -> float:
    return size_bytes(messages) * TOKENS_PER_BYTE_SAFE + TOKENS_PER_MESSAGE * len(messages)


@given(st.lists(TEXTS, max_size=12), TEXTS, st.integers(40, 800), st.none() | TEXTS)
def test_what_is_sent_is_the_system_prompt_the_latest_turns_and_the_prompt(
    texts: list[str], prompt: str, context: int, system: str | None
) -> None:
    conversation, room = with_turns(texts, system), ContextBudget(context, 0)
    everything = conversation.history()
    sent = conversation.fit(said(prompt), room)
    opening = [Message("system", system)] if system else []
    assert sent[: len(opening)] == opening
    assert sent[-1:] == [Message("user", prompt)]
    kept = sent[len(opening) : -1]
    assert kept == everything[len(everything) - len(kept) :]  # the latest, none left out between
    assert len(kept) % 2 == 0  # whole turns
    if kept:
        assert tokens(sent) <= room.tokens + len(sent)
    assert conversation.dropped == (len(everything) - len(kept)) // 2


@given(st.lists(TEXTS, min_size=1, max_size=12), st.integers(40, 800))
def test_nothing_is_dropped_that_would_have_fitted(texts: list[str], context: int) -> None:
    conversation, room = with_turns(texts), ContextBudget(context, 0)
    everything = conversation.history()
    sent = conversation.fit(said("now"), room)
    if len(sent) <= len(everything):
        one_more = everything[len(everything) - len(sent) - 1 :]
        assert tokens([*one_more, *said("now")]) > room.tokens - len(one_more) - 1


def test_what_was_left_out_is_sent_again_when_there_is_room() -> None:
    conversation = with_turns(["a" * 300] * 5)
    assert len(conversation.fit(said("now"), ContextBudget(400, 0))) < 11
    assert conversation.dropped > 0
    assert len(conversation.fit(said("now"), ContextBudget(100_000, 0))) == 11
    assert conversation.dropped == 0


def test_room_is_kept_for_the_answer() -> None:
    assert ContextBudget(4096, 0).tokens == 3072
    assert ContextBudget(4096, 512).tokens == 3584
    assert ContextBudget(4096, 100_000).tokens == 2048  # never more than half


def test_the_nodes_own_count_is_the_measure_once_there_is_one() -> None:
    conversation = with_turns(["a" * 300] * 10)
    conversation.learn(sent_bytes=3000, messages=20, prompt_tokens=3160)
    assert len(conversation.fit(said("now"), ContextBudget(1000, 0))) == 1 + 2 * 2


def test_little_text_says_nothing_about_the_measure() -> None:
    conversation = with_turns(["a" * 4000])
    conversation.learn(sent_bytes=2, messages=1, prompt_tokens=30)
    assert len(conversation.fit(said("go on"), ContextBudget(8192, 0))) == 3


def test_a_node_that_counts_next_to_nothing_does_not_switch_trimming_off() -> None:
    conversation = with_turns(["a" * 3000] * 10)
    conversation.learn(sent_bytes=30_000, messages=20, prompt_tokens=1)
    assert len(conversation.fit(said("go on"), ContextBudget(2000, 0))) < 10


def test_a_prompt_that_cannot_fit_is_known_beforehand() -> None:
    conversation = Conversation("be kind")
    assert conversation.shortage(said("x" * 1000), ContextBudget(512, 0)) == 0
    assert conversation.shortage(said("x" * 2000), ContextBudget(512, 0)) > 384


def test_history_does_not_count_against_a_prompt_because_it_can_be_dropped() -> None:
    conversation = with_turns(["a" * 3000] * 3)
    assert conversation.shortage(said("hi"), ContextBudget(512, 0)) == 0


def test_turns_and_bytes_are_bounded_whatever_the_context() -> None:
    conversation = with_turns(["short"] * (TURNS_MAX + 10))
    assert (len(conversation.turns), conversation.dropped) == (TURNS_MAX, 10)
    conversation = with_turns(["x" * (HISTORY_BYTES_MAX // 3)] * 5)
    assert size_bytes(conversation.history()) <= HISTORY_BYTES_MAX


def test_a_copy_goes_its_own_way() -> None:
    conversation = with_turns(["a"])
    copy = conversation.copy()
    copy.add(CompletedTurn(said("b"), "c"))
    assert (len(conversation.turns), len(copy.turns)) == (1, 2)
