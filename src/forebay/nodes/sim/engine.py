"""The simulated engine: slots, memory, time and failures.

It behaves like a real engine where a queue in front of it can tell the difference: a slot is held
for as long as a real answer would take, loading a model takes time and pushes others out of
memory, and everything beyond the slots is refused at once, since it keeps no line of its own.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from msgspec import Struct

from forebay.errors import BackendFailed, NotAllowed, Rejected

MODEL_GB = 8.0
"""What a model takes when its size is not given: a 7B model at 8 bits."""
GIB = 1 << 30
RETRY_AFTER_S = 1


class SimOptions(Struct, frozen=True):
    """How the simulated node behaves."""

    models: tuple[str, ...] = ("sim-model",)
    """Names, each optionally with its size in memory: `small@4` takes 4 GB."""
    slots: int = 1
    ttft_s: float = 0.2
    """From the start of a request to its first token, the model being loaded."""
    tokens_per_second: float = 50.0
    """Per request; 0 is as fast as possible."""
    load_s: float = 0.0
    """How long a model takes to load; 0 means that all are always in memory."""
    start_s: float = 0.0
    """How long it answers everything with 503 "loading model" before it is ready."""
    vram_gb: float = 0.0
    """Memory for models; 0 means room for exactly one, whatever its size."""
    fail_rate: float = 0.0
    """Share of requests that are answered 500."""
    seed: int = 0
    """Of the failures: the same seed and order of requests fail alike."""


class SimEngine:
    """Slots and memory of one simulated node. Belongs to one event loop."""

    def __init__(self, options: SimOptions) -> None:
        self.options = options
        self.sizes_gb = dict(map(_parse_model, options.models))
        self.running: dict[str, int] = dict.fromkeys(self.sizes_gb, 0)
        self.served = 0
        self.refused = 0
        self.aborted = 0
        self._random = random.Random(options.seed)
        self._ready_at_s: dict[str, float] = {}  # what is in memory, least recently used first

    @property
    def busy(self) -> int:
        return sum(self.running.values())

    @property
    def loaded(self) -> tuple[str, ...] | None:
        """Return the models in memory; None when nothing ever swaps."""
        return tuple(self._ready_at_s) if self.options.load_s > 0 else None

    @property
    def loaded_max(self) -> int:
        """Return how many models fit together, the smallest first; at least one."""
        room_gb, fit = self.options.vram_gb, 0
        for size_gb in sorted(self.sizes_gb.values()):
            room_gb -= size_gb
            fit += room_gb >= 0
        return max(1, fit)

    def gpu(self) -> dict[str, float]:
        """Return what a meter on its GPU would show: load, and memory where that is limited."""
        shown = {"gpu_load": self.busy / self.options.slots}
        if self.options.vram_gb > 0:
            held = self.sizes_gb if self.options.load_s <= 0 else self._ready_at_s
            used_gb = sum(self.sizes_gb[model] for model in held)
            shown["vram_used_bytes"] = int(min(used_gb, self.options.vram_gb) * GIB)
            shown["vram_total_bytes"] = int(self.options.vram_gb * GIB)
        return shown

    @contextmanager
    def slot(self, model: str) -> Iterator[None]:
        """Hold a slot for the model.

        Raises `NotAllowed` for an unknown model, `Rejected` when every slot is taken or the model
        cannot be swapped in now, `BackendFailed` when it can never fit or chance wants a failure.
        Leaving by an exception (the client has gone) counts as aborted.
        """
        if model not in self.sizes_gb:
            raise NotAllowed(f"the simulated node has no model '{model}'")
        try:
            if self.busy >= self.options.slots:
                raise Rejected(f"all {self.options.slots} slots of the simulated node are busy")
            self._make_room(model)
        except Rejected:
            self.refused += 1
            raise
        if self._random.random() < self.options.fail_rate:
            raise BackendFailed("a simulated failure: --fail-rate asked for it")
        self.running[model] += 1
        try:
            yield
        except BaseException:
            self.aborted += 1
            raise
        else:
            self.served += 1
        finally:
            self.running[model] -= 1

    async def ticks(self, model: str, tokens: int) -> AsyncIterator[int]:
        """Yield 0 to `tokens - 1`, each when a real engine would have that token."""
        loop = asyncio.get_running_loop()
        start_s = max(loop.time(), self._ready_at_s.get(model, 0.0)) + self.options.ttft_s
        gap_s = 1.0 / self.options.tokens_per_second if self.options.tokens_per_second > 0 else 0.0
        for token in range(tokens):
            # Counted from the start, so that a late wake-up does not add up over an answer.
            await asyncio.sleep(max(0.0, start_s + token * gap_s - loop.time()))
            yield token

    def _make_room(self, model: str) -> None:
        """Put the model in memory, pushing out idle ones, the least recently used first."""
        options = self.options
        if options.load_s <= 0:
            return
        if model in self._ready_at_s:
            self._ready_at_s[model] = self._ready_at_s.pop(model)
            return
        if 0 < options.vram_gb < self.sizes_gb[model]:
            raise BackendFailed(
                f"'{model}' takes {self.sizes_gb[model]:g} GB and the simulated node "
                f"has {options.vram_gb:g} GB"
            )
        staying = [other for other in self._ready_at_s if self.running[other]]
        idle = [other for other in self._ready_at_s if not self.running[other]]
        while not self._fits([*staying, *idle, model]):
            if not idle:
                raise Rejected("the simulated node's memory is in use by other models")
            del self._ready_at_s[idle.pop(0)]
        self._ready_at_s[model] = asyncio.get_running_loop().time() + options.load_s

    def _fits(self, models: list[str]) -> bool:
        if self.options.vram_gb <= 0:
            return len(models) <= 1
        return sum(self.sizes_gb[model] for model in models) <= self.options.vram_gb


def _parse_model(text: str) -> tuple[str, float]:
    """Split `name@GB`; an `@` without a number behind it belongs to the name.

    >>> _parse_model("small@4"), _parse_model("org/model@main")
    (('small', 4.0), ('org/model@main', 8.0))
    """
    name, _, size = text.rpartition("@")
    try:
        size_gb = float(size)
    except ValueError:
        return text, MODEL_GB
    return (name, size_gb) if name and 0 < size_gb < float("inf") else (text, MODEL_GB)
