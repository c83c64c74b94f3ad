"""The scheduler inside the continuous batching of transformers, with a tiny random model."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from random import Random
from typing import Any

import pytest

from forebay.batching import (
    Cancelled,
    CancelToken,
    DuplicateRequest,
    Priority,
    QueueFull,
    Request,
    RequestTooLarge,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.17")

from forebay.batching.transformers import BatchingEngine, EngineFailed  # noqa: E402

BLOCK, BLOCKS, STEP_TOKENS = 16, 64, 64


SHAPE = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "eos_token_id": None,
}


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(num_hidden_layers=2, **SHAPE)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def mixed_model() -> Any:
    """Two kinds of attention: one of its layers reads all tokens, the others the last 48."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        num_hidden_layers=3,
        use_sliding_window=True,
        sliding_window=48,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        **SHAPE,
    )
    return transformers.Qwen2ForCausalLM(config).eval()


def new_engine(model: Any, places: int | None = None, **options: Any) -> BatchingEngine:
    batching = transformers.ContinuousBatchingConfig(
        block_size=BLOCK,
        num_blocks=BLOCKS,
        max_batch_tokens=STEP_TOKENS,
        max_requests_per_batch=places,
    )
    generation = transformers.GenerationConfig(do_sample=False)
    return BatchingEngine(model, batching=batching, generation=generation, **options)


@pytest.fixture
def engine(model: Any) -> Iterator[BatchingEngine]:
    with new_engine(model, capacity=10_000) as engine:
        yield engine


def prompt(length: int, seed: int = 0) -> list[int]:
    return [Random(seed).randrange(1, 128) for _ in range(length)]


async def answered(
    engine: BatchingEngine, request: Request, priority: Priority = Priority.NORMAL
) -> list[int]:
    return [token async for piece in engine.generate(request, priority) for token in piece]


async def settled(engine: BatchingEngine) -> None:
    """Return once nothing of what was cancelled is left: the engine hears of it between steps."""
    while (figures := engine.figures()).running or figures.waiting or figures.kv_used:
        await asyncio.to_thread(engine.manager._has_new_requests.wait, 0.01)


async def test_answers_are_those_of_plain_generation(model: Any) -> None:
    requests = [Request(f"r{n}", prompt(5 + 11 * n, n), 7) for n in range(12)]
    plain = []
    for request in requests:  # before the engine changes the model's attention
        tokens = model.generate(torch.tensor([request.prompt]), max_new_tokens=7, do_sample=False)
        plain.append(tokens[0, len(request.prompt) :].tolist())
    with new_engine(model) as engine:
        assert await asyncio.gather(*(answered(engine, request) for request in requests)) == plain


async def test_a_model_with_two_kinds_of_attention_never_puts_anybody_out(mixed_model: Any) -> None:
    chance = Random(4)
    requests = [
        Request(f"r{n}", prompt(chance.randrange(1, 300), n), chance.randrange(1, 100))
        for n in range(60)
    ]
    with new_engine(mixed_model, capacity=None) as engine:
        with pytest.raises(RequestTooLarge):
            await answered(engine, Request("big", prompt(20_000), 5))
        answers = await asyncio.gather(*(answered(engine, request) for request in requests))
        assert [len(answer) for answer in answers] == [request.max_tokens for request in requests]
        await settled(engine)
        assert engine.figures().preempted == 0
        room = engine.figures().kv_free_tokens
        whole = Request("whole", prompt(room - 2), 1)
        assert len(await answered(engine, whole)) == 1


async def test_a_request_that_can_never_fit_is_refused_and_the_engine_lives_on(
    engine: BatchingEngine,
) -> None:
    with pytest.raises(RequestTooLarge, match=r"may take 2005 tokens, .* holds 1024"):
        await answered(engine, Request("big", prompt(2000), 5))
    assert len(await answered(engine, Request("small", prompt(20), 5))) == 5


async def test_the_bounds_of_the_queue_hold_in_the_callers_task(model: Any) -> None:
    engine = new_engine(model, capacity=1)
    first = asyncio.ensure_future(answered(engine, Request("first", prompt(8), 3)))
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        await answered(engine, Request("second", prompt(8), 3))
    with pytest.raises((DuplicateRequest, QueueFull)):
        await answered(engine, Request("first", prompt(8), 3))
    with engine:
        assert len(await first) == 3


async def test_the_id_of_a_running_request_is_refused(engine: BatchingEngine) -> None:
    async with aclosing(engine.generate(Request("x", prompt(8), 60))) as pieces:
        received = list(await anext(pieces))
        with pytest.raises(DuplicateRequest, match="has not ended"):
            await answered(engine, Request("x", prompt(9), 5))
        received += [token async for piece in pieces for token in piece]
    assert len(received) == 60
    assert len(await answered(engine, Request("x", prompt(9), 5))) == 5


async def test_a_high_request_overtakes_those_that_wait(model: Any) -> None:
    engine = new_engine(model, capacity=None)
    ended: list[str] = []

    async def run(id: str, priority: Priority) -> None:
        await answered(engine, Request(id, prompt(60), 4), priority)
        ended.append(id)

    tasks = [asyncio.ensure_future(run(f"low {n}", Priority.LOW)) for n in range(30)]
    await asyncio.sleep(0)
    tasks.append(asyncio.ensure_future(run("high", Priority.HIGH)))
    await asyncio.sleep(0)
    with engine:
        await asyncio.gather(*tasks)
    assert ended[0] == "high"


async def test_a_short_prompt_does_not_wait_for_a_long_one_nor_the_long_one_for_ever(
    model: Any,
) -> None:
    engine = new_engine(model, capacity=None)
    ended: list[str] = []

    async def run(id: str, length: int) -> None:
        await answered(engine, Request(id, prompt(length), 1))
        ended.append(id)

    tasks = [asyncio.ensure_future(run("long", 640))]
    await asyncio.sleep(0)
    tasks += [asyncio.ensure_future(run(f"short {n}", 16)) for n in range(200)]
    await asyncio.sleep(0)
    with engine:
        await asyncio.gather(*tasks)
    # A step has 64 tokens: 16 for the long prompt, 40 times, beside three short ones, 67 times.
    assert ended.index("short 0") < ended.index("long")
    assert ended.index("long") < 200


@pytest.mark.parametrize(("priority", "most"), [(Priority.HIGH, 34), (Priority.LOW, 32)])
async def test_higher_priorities_have_two_places_more_than_32(
    model: Any, priority: Priority, most: int
) -> None:
    with new_engine(model, places=32, capacity=None) as engine:
        async with asyncio.TaskGroup() as group:
            watched = engine.generate(Request("watched", prompt(1), 40), Priority.LOW)
            running: list[int] = []
            async for _ in watched:
                for n in range(40) if not running else ():
                    group.create_task(
                        answered(engine, Request(f"l{n}", prompt(1), 13), Priority.LOW)
                    )
                for n in range(9) if len(running) == 5 else ():
                    group.create_task(answered(engine, Request(f"h{n}", prompt(1), 13), priority))
                running.append(engine.figures().running)
        assert max(running) == most


async def test_two_users_share_a_priority(model: Any) -> None:
    engine = new_engine(model, capacity=None, fairness="round_robin")
    ended: list[str] = []

    async def run(id: str, user: str) -> None:
        await answered(engine, Request(id, prompt(60), 4, user=user))
        ended.append(user)

    tasks = [asyncio.ensure_future(run(f"ann {n}", "ann")) for n in range(50)]
    await asyncio.sleep(0)
    tasks += [asyncio.ensure_future(run(f"bob {n}", "bob")) for n in range(5)]
    await asyncio.sleep(0)
    with engine:
        await asyncio.gather(*tasks)
    assert ended[:12].count("bob") >= 4


async def test_cancelling_in_every_state_gives_all_blocks_back(engine: BatchingEngine) -> None:
    chance = Random(3)
    tokens: list[CancelToken] = []
    counts = {"answered": 0, "cancelled": 0, "left": 0}

    async def run(number: int) -> None:
        token = CancelToken()
        tokens.append(token)
        request = Request(f"r{number}", prompt(chance.randrange(1, 200), number), 12, cancel=token)
        leaves_after = chance.choice([0, 1, 5, 99, 99])
        try:
            async with aclosing(engine.generate(request, chance.choice(list(Priority)))) as pieces:
                received = 0
                async for piece in pieces:
                    received += len(piece)
                    if received > leaves_after:
                        counts["left"] += 1
                        return
        except Cancelled:
            counts["cancelled"] += 1
        else:
            counts["answered"] += 1

    tasks = [asyncio.ensure_future(run(number)) for number in range(200)]
    for number in range(200):
        await asyncio.sleep(0)
        if chance.random() < 0.4:
            tokens[number].cancel()
    await asyncio.gather(*tasks)
    await settled(engine)
    assert sum(counts.values()) == 200
    assert min(counts.values()) > 0
    assert engine.figures().kv_free_tokens == BLOCK * BLOCKS
    assert not engine._scheduler.submitted
    assert not engine.manager.output_router.result_handlers


async def test_with_all_of_the_answer_reserved_nobody_is_put_out_of_the_cache(
    engine: BatchingEngine,
) -> None:
    requests = [Request(f"r{n}", prompt(100, n), 150) for n in range(16)]
    answers = await asyncio.gather(*(answered(engine, request) for request in requests))
    assert [len(answer) for answer in answers] == [150] * 16
    assert engine.figures().preempted == 0


async def test_with_less_reserved_those_put_out_go_on_where_they_were(model: Any) -> None:
    requests = [Request(f"r{n}", prompt(100, n), 150) for n in range(16)]
    with new_engine(model, answer_bound=1) as engine:
        answers = await asyncio.gather(*(answered(engine, request) for request in requests))
        assert [len(answer) for answer in answers] == [150] * 16
        assert engine.figures().preempted > 0
        await settled(engine)


async def test_the_time_to_the_first_token_is_kept_by_priority(engine: BatchingEngine) -> None:
    await answered(engine, Request("r", prompt(8), 2), Priority.HIGH)
    times = engine.figures().first_token_s
    assert [len(times[priority]) for priority in Priority] == [0, 0, 1, 0]
    assert times[Priority.HIGH][0] > 0


async def test_closing_ends_what_runs_and_waits(model: Any) -> None:
    engine = new_engine(model)
    engine.start()
    tasks = [
        asyncio.ensure_future(answered(engine, Request(f"r{n}", prompt(100), 200)))
        for n in range(20)
    ]
    async with aclosing(engine.generate(Request("one", prompt(8), 4), Priority.HIGH)) as pieces:
        await anext(pieces)
    await asyncio.to_thread(engine.close)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, EngineFailed) for end in ends), ends
    with pytest.raises(Exception, match="closed"):
        await answered(engine, Request("late", prompt(8), 2))


async def test_a_request_given_to_the_manager_of_transformers_itself_is_served_too(
    engine: BatchingEngine,
) -> None:
    done = asyncio.get_running_loop().create_future()
    engine.manager.register_result_handler("direct", done.set_result)
    engine.manager.add_request(prompt(8), request_id="direct", max_new_tokens=3)
    assert len((await done).generated_tokens) == 3


async def test_text_is_refused(engine: BatchingEngine) -> None:
    with pytest.raises(TypeError, match="must be tokens, not text"):
        await answered(engine, Request("r", "Why?"))


async def test_an_empty_prompt_is_refused_and_the_engine_lives_on(engine: BatchingEngine) -> None:
    with pytest.raises(ValueError, match="is empty"):
        await answered(engine, Request("r", []))
    assert len(await answered(engine, Request("r", prompt(8), 3))) == 3
