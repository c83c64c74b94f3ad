"""The commands that hints name reach the gateway that was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Desk


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("queue list", "queue list --state ended"),
        ("queue list --user nobody", "queue list"),
        ("sessions list", "chat"),
        ("batch list", "batch FILE.jsonl"),
        ("batch list --status failed", "batch list"),
        ("jobs list", 'jobs submit chat --model MODEL --prompt "Why is the sky blue?"'),
    ],
)
async def test_a_hint_names_the_gateway_by_the_flags_that_were_given(
    desk: Desk, words: str, hint: str
) -> None:
    gateway = await desk.start()
    url = f"http://127.0.0.1:{gateway.port}"
    done = await desk.run(*words.split(), "--key-env", "KEY", KEY="a-key")
    assert done.exit_code == 0
    assert f"forebay {hint} --url {url} --key-env KEY" in " ".join(done.stdout.split())
