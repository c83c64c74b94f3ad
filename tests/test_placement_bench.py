"""The benchmark of unlike nodes asks all sides the same, and its nodes wait as Ollama's do."""

from __future__ import annotations

import httpx
import pytest

from bench.placement.__main__ import print_table
from bench.placement.load import Answer, Asked, arrivals, figures, offer
from bench.placement.ollama_like import OllamaLike
from forebay.nodes.sim.engine import SimOptions


def test_arrivals_are_the_same_for_every_side() -> None:
    drawn = arrivals(1, 50.0, 20.0, ("a", "b"))
    assert drawn == arrivals(1, 50.0, 20.0, ("a", "b"))
    assert len(drawn) == pytest.approx(1000, rel=0.1)
    assert {asked.model for asked in drawn} == {"a", "b"}


def test_an_answer_that_failed_is_counted_apart() -> None:
    taken = [
        Answer(0.0, 1.0, "a", "127.0.0.1-8001", 200),
        Answer(0.1, 2.0, "b", "127.0.0.1-8001", 200),
        Answer(0.2, 6.0, "b", "127.0.0.1-8002", 200),
        Answer(0.3, 0.0, "b", "", 503),
    ]
    found = figures(taken, ("8001", "n0"))
    assert (found["answers"], found["failed"], found["changes"]) == (3, 1, 1)
    assert (found["mean_s"], found["p95_s"]) == (3.0, 6.0)
    assert found["first_share"] == pytest.approx(2 / 3, abs=0.001)


def test_every_load_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures([Answer(0.0, 1.5, "a", "n0", 200)], ("8001", "n0"))
    sides = ("forebay", "haproxy")
    print_table([{"load": load, "side": side, **found} for load in (0.1, 0.5) for side in sides])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["0.10", *["1.500", "1.500", "100%", "0", "0"] * 2]
    assert len(lines) == 3


async def test_a_node_lets_wait_whom_it_has_no_room_for() -> None:
    node = OllamaLike(SimOptions(models=("a", "b"), slots=1, ttft_s=0.0, load_s=0.001))
    await node.start()
    asked = [Asked(0.0, model, 5, 1) for model in "abbaab"]
    async with httpx.AsyncClient(trust_env=False) as client:
        answers = await offer(client, node.url, asked, "test")
    await node.stop()
    assert [answer.status for answer in answers] == [200] * 6
    assert node.engine.refused > 0, "the engine itself would have refused some"
