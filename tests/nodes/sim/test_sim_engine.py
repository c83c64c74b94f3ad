"""The simulated engine by itself: slots, memory, failures, pace."""

import asyncio
from contextlib import ExitStack

import pytest

from forebay.errors import BackendFailed, NotAllowed, Rejected
from forebay.nodes.sim.engine import SimEngine, SimOptions
from forebay.nodes.sim.text import answer_words, embedding, prompt_text


def swapping(*models: str, vram_gb: float = 0.0) -> SimEngine:
    return SimEngine(SimOptions(models=models, slots=4, load_s=0.05, vram_gb=vram_gb))


def test_no_more_run_than_there_are_slots() -> None:
    engine = SimEngine(SimOptions(slots=2))
    with ExitStack() as held:
        held.enter_context(engine.slot("sim-model"))
        held.enter_context(engine.slot("sim-model"))
        with pytest.raises(Rejected), engine.slot("sim-model"):
            pass
        assert (engine.busy, engine.refused) == (2, 1)
    assert (engine.busy, engine.served) == (0, 2)


def test_a_slot_is_given_back_when_its_request_breaks_off() -> None:
    engine = SimEngine(SimOptions())
    with pytest.raises(asyncio.CancelledError), engine.slot("sim-model"):
        raise asyncio.CancelledError
    assert (engine.busy, engine.aborted, engine.served) == (0, 1, 0)


def test_a_model_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(NotAllowed), SimEngine(SimOptions()).slot("other"):
        pass


def failures(seed: int, rate: float) -> list[bool]:
    engine = SimEngine(SimOptions(fail_rate=rate, seed=seed))
    failed = []
    for _ in range(50):
        try:
            with engine.slot("sim-model"):
                failed.append(False)
        except BackendFailed:
            failed.append(True)
    assert engine.busy == 0
    return failed


def test_failures_come_at_the_asked_rate_and_the_same_for_the_same_seed() -> None:
    assert failures(1, 0.0) == [False] * 50
    assert failures(1, 1.0) == [True] * 50
    assert failures(1, 0.5) == failures(1, 0.5) != failures(2, 0.5)


async def test_without_a_load_time_every_model_is_always_there() -> None:
    engine = SimEngine(SimOptions(models=("a", "b")))
    with engine.slot("a"):
        pass
    assert engine.loaded is None


async def test_one_model_pushes_the_other_out_when_there_is_room_for_one() -> None:
    engine = swapping("a", "b")
    for model in ("a", "b"):
        with engine.slot(model):
            assert engine.loaded == (model,)
    assert engine.loaded_max == 1


async def test_a_model_in_use_is_not_pushed_out() -> None:
    engine = swapping("a", "b")
    with engine.slot("a"), pytest.raises(Rejected), engine.slot("b"):
        pass
    assert engine.loaded == ("a",)


async def test_models_share_the_memory_and_the_least_recently_used_goes_first() -> None:
    engine = swapping("a@4", "b@4", "c@4", vram_gb=8.0)
    for model in ("a", "b", "a", "c"):
        with engine.slot(model):
            pass
    assert engine.loaded == ("a", "c")
    assert engine.loaded_max == 2


async def test_a_model_that_can_never_fit_fails_to_load_and_the_others_run() -> None:
    engine = swapping("small@4", "large@80", vram_gb=8.0)
    with pytest.raises(BackendFailed, match="80 GB"), engine.slot("large"):
        pass
    with engine.slot("small"):
        pass
    assert engine.loaded == ("small",)


async def test_the_first_token_waits_for_the_load_and_the_first_token_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def note(wait_s: float) -> None:
        waits.append(wait_s)

    # Noted, not waited for: seconds so many that those of the test itself do not matter.
    monkeypatch.setattr(asyncio, "sleep", note)
    engine = SimEngine(SimOptions(load_s=10_000.0, ttft_s=5_000.0, tokens_per_second=0.001))
    with engine.slot("sim-model"):
        tokens = [token async for token in engine.ticks("sim-model", 3)]
    assert tokens == [0, 1, 2]
    assert waits == pytest.approx([15_000.0, 16_000.0, 17_000.0], abs=400.0)


def test_the_answer_says_that_it_is_simulated_and_ends_where_it_ends() -> None:
    words = answer_words("m", "one two three", 1000, forced=False)
    text = "".join(words)
    assert "simulated answer" in text
    assert "3 words" in text
    assert text.endswith("real answer.")


def test_the_answer_is_cut_at_the_limit_and_can_be_forced_to_it() -> None:
    assert answer_words("m", "", 3, forced=False) == ["This", " is", " a"]
    assert len(answer_words("m", "", 500, forced=True)) == 500


def test_embeddings_depend_on_the_text_alone() -> None:
    assert embedding("a") == embedding("a") != embedding("b")


def test_every_form_of_a_prompt_is_read() -> None:
    parts = [{"type": "text", "text": "b"}, {"type": "image_url"}]
    assert prompt_text(["a", {"content": parts}, {"content": "c"}, None, 7]) == "a\nb\nc"
