"""The benchmark of cached prompts says what was computed, and what could have been spared."""

from __future__ import annotations

import random
from statistics import median
from typing import TYPE_CHECKING

import httpx
import pytest

from bench.prefix.__main__ import llama_cpp
from bench.prefix.load import FIRST_TOKENS, TURNS, WORDS, Conversation, Turn, drawn
from bench.prefix.report import figures, print_table, ratios
from harness.tiny_model import write_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

TALKS = {
    "forebay": [[Turn(100, 100, 100, "a", 1.0, 0.9), Turn(20, 120, 10, "a", 0.2, 0.1)]],
    "haproxy": [[Turn(100, 100, 100, "a", 1.0, 0.9), Turn(120, 120, 10, "b", 1.2, 1.1)]],
}


def test_turns_after_the_first_are_compared_by_what_was_computed() -> None:
    found = {name: figures(talks) for name, talks in TALKS.items()}
    ours = found["forebay"]["later"]
    assert (ours["computed"], ours["least"]) == pytest.approx((20 / 120, 10 / 120), abs=1e-4)
    assert [found[name]["later"]["went_elsewhere"] for name in TALKS] == [0.0, 1.0]
    result = ratios(found)
    assert result["computed"] == result["first_token_s_median"] == pytest.approx(6.0, abs=0.01)
    assert result["computed_at_best"] == pytest.approx(12.0, abs=0.01)


def test_every_turn_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table({name: figures(talks) for name, talks in TALKS.items()})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["turn", "1", "2", "2-6"]
    assert lines[2].split() == ["2", "8.3%", "16.7%", "0.200", "100.0%", "1.200"]


def test_lengths_follow_the_trace() -> None:
    rng = random.Random(1)
    lengths = [drawn(rng, FIRST_TOKENS) for _ in range(4000)]
    assert min(lengths) >= FIRST_TOKENS[0]
    assert max(lengths) <= FIRST_TOKENS[-1]
    assert median(lengths) == pytest.approx(FIRST_TOKENS[4], rel=0.05)


async def test_a_node_says_what_it_computed_of_each_turn(tmp_path: Path) -> None:
    gguf = write_tiny_model(tmp_path / "model.gguf", words=WORDS)
    talk = Conversation(1, "test", pace=0.0)
    limits = httpx.Limits(max_keepalive_connections=0)  # llama.cpp closes idle ones after 5 s
    async with httpx.AsyncClient(timeout=60.0, trust_env=False, limits=limits) as client:
        with llama_cpp(gguf, cache_mib=0) as url:
            said = {"content": " " + " ".join(WORDS)}
            tokens = (await client.post(f"{url}/tokenize", json=said)).json()["tokens"]
            await talk.hold(client, url)
    assert len(tokens) == len(WORDS), "each is one"
    assert len(talk.turns) == TURNS
    first, *later = talk.turns
    assert first.computed == first.prompt == first.least
    for before, turn in zip(talk.turns, later, strict=False):
        assert turn.least <= turn.computed <= turn.prompt - before.prompt + 1, (
            "one slot: all cached"
        )
