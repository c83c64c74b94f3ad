"""One run: a model, a scheduler, requests that arrive at given times."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

from forebay.batching import Priority, Request
from forebay.batching.kv_cache import kv_cache
from forebay.batching.transformers import BatchingEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

BLOCK_TOKENS = 512
"""Tokens that one hash of the trace stands for."""
VOCABULARY = 32_000
SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}


@dataclass
class Arrival:
    """One request of a run."""

    id: str
    at_s: float
    prompt: list[int]
    output: int
    priority: Priority = Priority.LOW


@dataclass
class Result:
    """What became of one request."""

    id: str
    priority: str
    prompt: int
    output: int
    at_s: float
    first_s: float | None = None
    end_s: float | None = None
    error: str = ""


@dataclass
class Options:
    """How the engine of a run is set up, the same for both schedulers."""

    batch_tokens: int = 8192
    blocks: int | None = None
    graphs: bool = False
    attention: str = "flash_attention_2"
    """Which of transformers' attention kernels a GPU runs."""
    overlap: bool = False
    """Whether the next step is prepared while one runs (`use_async_batching`)."""
    requests_max: int = 256
    """Requests that run at once."""


def make_model(size: str) -> Any:
    """Return a model of random weights, on the GPU if there is one."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=262_144,
        eos_token_id=None,
        bos_token_id=None,
        **SHAPES[size],
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    if device == "cuda":
        use_flash_attention()
    return model


def use_flash_attention() -> None:
    """Let transformers use the flash attention that PyTorch has built in.

    It asks for the package `flash_attn`, which is not everywhere; PyTorch's kernel is of the same
    origin. Its variant that reads the cache in place is missing, so that each step gathers it.
    """
    from transformers.integrations import flash_paged

    def varlen(*packed: Any, softmax_scale: float, **_options: Any) -> Any:
        dropout, is_causal, for_debugging = 0.0, True, False
        return torch.ops.aten._flash_attention_forward(
            *packed, dropout, is_causal, for_debugging, scale=softmax_scale
        )[0]

    flash_paged.lazy_import_paged_flash_attention = lambda *_args, **_options: (varlen, None)


def read_trace(path: Path, count: int, cap: int, seed: int) -> list[Arrival]:
    """Return the first requests of a trace with prompt hashes, every tenth of them `high`."""
    chance = Random(seed)
    arrivals = []
    with path.open() as lines:
        for number, line in zip(range(count), lines, strict=False):
            row = json.loads(line)
            prompt: list[int] = []
            for block in row["hash_ids"]:
                same = Random(block)
                prompt += [same.randrange(1, VOCABULARY) for _ in range(BLOCK_TOKENS)]
                if len(prompt) >= cap:
                    break
            arrivals.append(
                Arrival(
                    id=f"r{number}",
                    at_s=row["timestamp"] / 1000,
                    prompt=prompt[: max(1, min(row["input_length"], cap))],
                    output=max(1, row["output_length"]),
                    priority=Priority.HIGH if chance.random() < 0.1 else Priority.LOW,
                )
            )
    return arrivals


def batching(options: Options) -> ContinuousBatchingConfig:
    """Return what both schedulers' engines are told."""
    return ContinuousBatchingConfig(
        block_size=256 if torch.cuda.is_available() else 16,
        num_blocks=options.blocks,
        max_batch_tokens=options.batch_tokens,
        max_blocks_per_request=0,
        max_memory_percent=0.8,
        max_requests_per_batch=options.requests_max,
        use_async_batching=options.overlap,
        use_cuda_graph=options.graphs,
        scheduler_type="fifo",
    )


class FifoEngine:
    """transformers as it comes."""

    def __init__(self, model: Any, options: Options) -> None:
        generation = GenerationConfig(do_sample=False)
        self.manager = model.init_continuous_batching(
            generation_config=generation, continuous_batching_config=batching(options)
        )
        self.manager.warmup()
        self._cache = kv_cache(self.manager.batch_processor.scheduler)

    async def run(self, arrival: Arrival) -> Any:
        """Run one request to its end; return its output."""
        done = asyncio.get_running_loop().create_future()
        self.manager.register_result_handler(arrival.id, done.set_result)
        if self.manager.add_request(
            arrival.prompt,
            request_id=arrival.id,
            max_new_tokens=arrival.output,
            record_timestamps=True,
        ):
            return await done
        raise RuntimeError("the engine has stopped")

    def used_blocks(self) -> int:
        return self._cache.used()


class QueuedEngine:
    """transformers with our scheduler."""

    def __init__(self, model: Any, options: Options) -> None:
        self.engine = BatchingEngine(
            model,
            capacity=None,
            batching=batching(options),
            generation=GenerationConfig(do_sample=False),
        )
        self.manager = self.engine.manager

    async def run(self, arrival: Arrival) -> Any:
        """Run one request to its end; return its output."""
        outputs: asyncio.Queue[Any] = asyncio.Queue()
        request = Request(arrival.id, arrival.prompt, arrival.output)
        end = self.engine._submit(
            request, arrival.priority, outputs.put_nowait, lambda: None, stream=False
        )
        is_over = False
        try:
            output = await outputs.get()
            is_over = True
            return output
        finally:
            end(is_over)

    def used_blocks(self) -> int:
        return self.engine.figures().kv_used


ENGINES: dict[str, Callable[[Any, Options], Any]] = {"fifo": FifoEngine, "forebay": QueuedEngine}


def run(
    model: Any, scheduler: str, arrivals: Sequence[Arrival], options: Options, limit_s: float
) -> tuple[list[Result], dict[str, float]]:
    """Run all requests, each at its time; return what became of them, and of the engine."""
    if torch.cuda.is_available():
        model.config._attn_implementation_internal = f"paged|{options.attention}"
    engine = ENGINES[scheduler](model, options)
    step_s = _timed(engine.manager.batch_processor.scheduler)
    engine.manager.start()
    try:
        results = asyncio.run(_run(engine, arrivals, limit_s))
        used = engine.used_blocks() if engine.manager.batch_processor is not None else -1
    finally:
        engine.manager.stop(block=True, hard_stop=True, timeout=30)
    ended = [result.end_s for result in results if result.end_s is not None]
    wall_s = max(ended) - min(result.at_s for result in results) if ended else 0.0
    done = [result for result in results if result.end_s is not None and not result.error]
    figures = {
        "wall_s": wall_s,
        "done": len(done),
        "failed": len(results) - len(done),
        "blocks_left_in_use": used,
        "steps": len(step_s),
        "scheduling_us": 1e6 * sum(step_s) / max(len(step_s), 1),
        "output_tokens_per_s": sum(result.output for result in done) / wall_s if wall_s else 0.0,
        "tokens_per_s": sum(result.output + result.prompt for result in done) / wall_s
        if wall_s
        else 0.0,
    }
    return results, figures


def _timed(scheduler: Any) -> list[float]:
    """Return a list that gets the seconds it takes to fill each step that is not empty."""
    step_s: list[float] = []
    schedule = scheduler.schedule_batch

    def timed(*budgets: int) -> Any:
        begin_s = time.perf_counter()
        batch = schedule(*budgets)
        if batch[0]:
            step_s.append(time.perf_counter() - begin_s)
        return batch

    scheduler.schedule_batch = timed
    return step_s


async def _run(engine: Any, arrivals: Sequence[Arrival], limit_s: float) -> list[Result]:
    begin_s = time.perf_counter()

    async def one(arrival: Arrival) -> Result:
        result = Result(
            arrival.id,
            arrival.priority.name.lower(),
            len(arrival.prompt),
            arrival.output,
            arrival.at_s,
        )
        await asyncio.sleep(max(0.0, begin_s + arrival.at_s - time.perf_counter()))
        sent_s = time.perf_counter()
        try:
            output = await asyncio.wait_for(engine.run(arrival), limit_s)
        except Exception as error:
            result.error = f"{type(error).__name__}: {error}"
            return result
        result.end_s = time.perf_counter() - begin_s
        result.error = output.error or ""
        if output.timestamps:
            result.first_s = output.timestamps[0] - sent_s
        return result

    return await asyncio.gather(*(one(arrival) for arrival in arrivals))
