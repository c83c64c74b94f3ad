"""The demo shows what it says: played through once, quickly, on real sockets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from forebay.demo import scenes
from forebay.demo.scenes import JOBS, DemoAnswer, DemoUser, play
from forebay.demo.setup import DemoSetup

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.api.events import Words

PACE = 0.04


class Recorder(DemoUser):
    """A user whose answers are kept to the end."""

    everyone: list[Recorder]

    def __init__(self, name: str, http: object) -> None:
        super().__init__(name, http)  # type: ignore[arg-type]
        self.all: list[DemoAnswer] = []
        Recorder.everyone.append(self)

    async def ask(self, model: str, **more: object) -> DemoAnswer:
        answer = await super().ask(model, **more)  # type: ignore[arg-type]
        self.all.append(answer)
        return answer


@pytest.fixture(autouse=True)
def recorders(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorder.everyone = []
    monkeypatch.setattr(scenes, "DemoUser", Recorder)


async def test_every_scene_shows_what_its_caption_says(tmp_path: Path) -> None:
    said: list[Words] = []
    async with DemoSetup(tmp_path, said.append, pace=PACE) as stage:
        await play(stage, random.Random(1), once=True)
        swaps, retries, left = await stage.swaps(), stage.retries, await stage.waiting()
        assert stage.gateway.parts.dashboard_feed.caption is said[-1]
        assert stage.state_of("gpu2") == "online"
    script = next(one for one in Recorder.everyone if one.name == "script")
    people = [one for one in Recorder.everyone if one is not script]
    assert {answer.status for person in people for answer in person.all} == {200}
    assert {answer.status for answer in script.all} == {200, 429}
    assert retries > 0
    assert 0 < swaps < JOBS
    assert left == 0
    english = "\n".join(words.en for words in said)
    assert f"{JOBS} of {JOBS} jobs are done" in english
    assert " 0 requests failed" in english
    assert all(words.ja and words.ja != words.en for words in said)


async def test_a_port_that_is_taken_is_said_and_nothing_is_left_running(tmp_path: Path) -> None:
    async with DemoSetup(tmp_path, lambda _: None) as stage:
        port = stage.gateway.port
        other = DemoSetup(tmp_path, lambda _: None, port=port)
        with pytest.raises(OSError, match="in use"):
            await other.__aenter__()
