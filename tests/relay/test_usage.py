"""How many tokens an answer took: as the node says, else as well as can be guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.relay.answer import TAIL_BYTES, count_tokens, read_usage
from forebay.relay.ollama import OLLAMA
from forebay.relay.openai import OPENAI

if TYPE_CHECKING:
    from forebay.relay.family import Family

USAGE = b'"usage":{"prompt_tokens":12,"completion_tokens":34}'


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b"{%b}" % USAGE, (12, 34)),
        (b'{"usage" : { "completion_tokens" : 34 , "prompt_tokens" : 12 }}', (12, 34)),
        (b'{"usage":{"input_tokens":1,"output_tokens":2}}', (1, 2)),
        (b'{"prompt_eval_count":5,"prompt_eval_duration":9,"eval_count":6}', (5, 6)),
        (b'{"usage":{"prompt_tokens":7}}', (7, -1)),
        (b'{"usage":null}', (-1, -1)),
        (b'{"usage":{"prompt_tokens":-3,"completion_tokens":"4"}}', (-1, -1)),
        (b'{"choices":[]}', (-1, -1)),
        (b"", (-1, -1)),
    ],
)
def test_usage_is_read_in_every_family_s_words(tail: bytes, expected: tuple[int, int]) -> None:
    assert read_usage(tail) == expected


@given(
    names=st.permutations(["prompt_tokens", "completion_tokens", "total_tokens"]),
    digits=st.lists(st.from_regex(r"[0-9]{0,11}", fullmatch=True), min_size=3, max_size=3),
    colon=st.sampled_from([":", ": "]),
    shorter=st.integers(0, 40),
    words=st.sampled_from([("prompt", "completion"), ("input", "output")]),
)
def test_the_quick_way_reads_what_the_thorough_one_does(
    names: list[str], digits: list[str], colon: str, shorter: int, words: tuple[str, str]
) -> None:
    text = ",".join(f'"{name}"{colon}{number}' for name, number in zip(names, digits, strict=True))
    text = text.replace("prompt", words[0]).replace("completion", words[1])
    tail = f'{{"usage":{{{text}}}}}'.encode()
    tail = tail[: len(tail) - shorter]
    # a bytearray is read by regular expressions only
    assert read_usage(tail) == read_usage(bytearray(tail))


@given(
    prompt=st.from_regex(r"[0-9]{0,11}|-[1-9]|null", fullmatch=True),
    output=st.from_regex(r"[0-9]{0,11}", fullmatch=True),
    before=st.sampled_from(["", '{"eval_count":7}\n', "\n"]),
    shorter=st.integers(0, 40),
)
def test_the_quick_way_reads_what_the_thorough_one_does_of_ollama(
    prompt: str, output: str, before: str, shorter: int
) -> None:
    line = f'{{"done":true,"prompt_eval_count":{prompt},"eval_count":{output}}}'
    tail = f"{before}{line[: len(line) - shorter]}\n".encode()
    assert read_usage(tail) == read_usage(bytearray(tail))


def test_an_answer_nested_too_deeply_is_read_by_the_thorough_way() -> None:
    deep = b'{"a":%b,"eval_count":6}' % (b"[" * 3000 + b"]" * 3000)
    assert read_usage(deep) == (-1, 6)
    assert read_usage(b'{"usage":{"a":%b,"output_tokens":6}}' % (b"[" * 3000 + b"]" * 3000)) == (
        -1,
        6,
    )


def test_the_last_usage_counts() -> None:
    early = b'data: {"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    assert read_usage(early + b"data: {%b}\n\n" % USAGE) == (12, 34)


def tokens(*pieces: bytes, family: Family = OPENAI) -> tuple[int, int]:
    """Count what comes in these pieces, as the relay does."""
    events = sum(piece.count(family.event_mark) for piece in pieces)
    size_bytes = sum(map(len, pieces))
    bare = family.bare_counts
    return count_tokens(list(pieces), events, size_bytes, 1000, bare=bare, whole=True)


def test_a_unary_answer_is_counted_by_its_usage() -> None:
    assert tokens(b'{"choices":[],', USAGE + b"}") == (12, 34)


def test_usage_that_is_torn_in_two_pieces_is_found() -> None:
    assert tokens(b'{"x":1,"usage":{"prompt_to', b'kens":12,"completion_tokens":34}}') == (12, 34)


def test_usage_far_from_the_end_is_not_looked_for() -> None:
    assert tokens(b"data: {%b}\n\n" % USAGE, *[b"data: x\n\n" * 100] * 50)[0] == -1


def test_usage_within_the_tail_is_found_however_small_the_pieces() -> None:
    text = b"data: {%b}\n\n" % USAGE + b"data: y\n\n" * ((TAIL_BYTES - 200) // 9)
    pieces = [b"data: x\n\n"] * 2000 + [text[i : i + 7] for i in range(0, len(text), 7)]
    assert tokens(*pieces) == (12, 34)


def test_without_usage_a_stream_is_counted_by_its_events_and_others_by_their_bytes() -> None:
    assert tokens(b"data: a\n\n", b"data: b\n\ndata: c\n\n") == (-1, 3)
    assert tokens(b'{"a":1}\n', b'{"b":2}\n', family=OLLAMA) == (-1, 2)
    assert tokens(b"x" * 400) == (-1, 100)


def test_nothing_answered_is_nothing_known() -> None:
    assert tokens() == (-1, -1)
