"""All nodes of this gateway: added, removed, drained and resumed while it runs."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING

from forebay.core import NodeChanged, NodeRemoved, NodeRested
from forebay.errors import NotAllowed
from forebay.nodes.adapters.answers import CONTEXT_FIELDS
from forebay.nodes.adapters.ollama import Ollama
from forebay.nodes.adapters.simulated import Simulated
from forebay.nodes.backend import Backend
from forebay.nodes.gpu import GpuMeter
from forebay.nodes.probing import Probing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from forebay.clock import TimerHandle, Timers
    from forebay.core import Event, SlotsChanged
    from forebay.core.events import NodeState
    from forebay.settings import NodeSettings
    from forebay.wire.pool import ConnectionPool

SOUGHT, GUARDS = "(sought)", "(guards)"
"""What the core knows those by that are no nodes yet."""
NODES_MAX = 1000
"""Each node has timers, connections and labels of its own."""

NAMES_MAX = 1024


class Nodes:
    """The nodes by name."""

    def __init__(self, api_key_of: Callable[[NodeSettings], str | None], clock: Timers) -> None:
        self._api_key_of = api_key_of
        self._clock = clock
        self._gpu = GpuMeter()
        self.probing = Probing()
        """Who probes: this process, unless another one does it for several."""
        self.on_change: Callable[[str], None] = lambda _: None
        """Called with the name of a node that is new, gone, or not as it was."""
        self._reading_gpus: asyncio.Task[None] | None = None
        self._backends: dict[str, Backend] = {}
        self._pools: dict[str, Backend] = {}  # by what the core knows their slots for some models
        self._post: Callable[[Event], None] = _nobody
        self._expected: dict[str, TimerHandle | None] = {}  # some that are on their way
        self._all_asked = False
        self.offline_wait_s = 30.0
        """For how long a node that has never answered may still be starting."""
        self.now_s = clock.monotonic_s
        self._waiting: list[asyncio.Future[None]] = []
        self._leaving: list[ConnectionPool] = []  # of nodes removed while requests ran there
        self.has_absences = False
        """Whether a node may be known not to have a route."""
        self.several = False
        """Whether there is more than one node."""
        self.has_ollama = False
        """Whether any node is Ollama, whose models have short names."""
        # As found since a node last told of itself; of names that somebody makes up only some.
        self.full_name = lru_cache(NAMES_MAX)(self._full_name)
        self.serve_several = lru_cache(NAMES_MAX)(self._serve_several)

    def connect(self, post: Callable[[Event], None]) -> None:
        """Tell the core through this from now on."""
        self._post = post

    @property
    def expecting(self) -> bool:
        """Whether nodes are still being looked for or started: requests wait for them."""
        return SOUGHT in self._expected

    @expecting.setter
    def expecting(self, expecting: bool) -> None:
        if expecting:
            self._expect(NodeChanged(SOUGHT, 0, (), state="loading", is_new=True), None)
        else:
            self._expect_no_more(SOUGHT)

    def expect_guards(self, for_s: float) -> None:
        """Know that guards may be on their way, with any model."""
        until_s = self._clock.monotonic_s() + for_s
        timer = self._clock.call_at(until_s, lambda: self._expect_no_more(GUARDS))
        self._expect(NodeChanged(GUARDS, 0, (), state="offline", is_new=True), timer)

    @property
    def expected(self) -> tuple[str, ...]:
        """What is on its way: nodes that are sought, or guards."""
        return tuple(self._expected)

    def mirror_expected(self, names: Sequence[str]) -> None:
        """Expect what another process does, for as long as it does."""
        for name in self.expected:
            if name not in names:
                self._expect_no_more(name)
        for name in names:
            if name not in self._expected:
                state: NodeState = "loading" if name == SOUGHT else "offline"
                self._expect(NodeChanged(name, 0, (), state=state, is_new=True), None)

    def _expect(self, event: NodeChanged, timer: TimerHandle | None) -> None:
        self._expected[event.name] = timer
        self._post(event)
        self.on_change(event.name)

    def _expect_no_more(self, name: str) -> None:
        if name in self._expected:
            timer = self._expected.pop(name)
            if timer is not None:
                timer.cancel()
            self._post(NodeRemoved(name))
            self.on_change(name)

    def __iter__(self) -> Iterator[Backend]:
        return iter(list(self._backends.values()))

    def get(self, name: str) -> Backend | None:
        """Return a node, or the one with a pool of slots of that name; None when there is none."""
        return self._backends.get(name) or self._pools.get(name)

    def add(self, settings: NodeSettings, token_header: bytes = b"") -> Backend:
        """Take a node in and begin to ask it; raises NotAllowed for a name that is taken.

        `token_header` goes to a guard that stands before it.
        """
        if settings.name in self._backends:
            raise NotAllowed(f"there is a node {settings.name!r} already")
        if len(self._backends) >= NODES_MAX:
            raise NotAllowed(f"{NODES_MAX} nodes are the limit of one gateway")
        return self._begin(settings, None, token_header)

    def replace(self, settings: NodeSettings, token_header: bytes = b"") -> Backend:
        """Put a node in the place of the one of that name; what is known of it is kept."""
        old = self._backends.pop(settings.name, None)
        if old is not None:
            self._stop(old)
        return self._begin(settings, old, token_header)

    def _begin(self, settings: NodeSettings, old: Backend | None, token_header: bytes) -> Backend:
        backend = Backend(
            settings,
            self._api_key_of(settings),
            self._tell,
            self._clock,
            self._gpu,
            self.probing,
        )
        if token_header:
            backend.guarded_by(token_header)
        if old is not None:
            backend.take_over(old)
        self._backends[settings.name] = backend
        self._pools.update(dict.fromkeys(backend.pool_names, backend))
        backend.start()
        return backend

    async def pause(self, limit_s: float, *, for_change: bool = True) -> None:
        """Wait for so long, or only until a node tells of itself."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_at(self.now_s() + limit_s, lambda: _set(over))
        if for_change:
            self._waiting.append(over)
        try:
            await over
        finally:
            timer.cancel()
            if over in self._waiting:
                self._waiting.remove(over)

    def wake(self) -> None:
        """End every `pause` that waits for a change."""
        for over in self._waiting:
            _set(over)

    def _tell(self, event: NodeChanged | NodeRemoved | NodeRested) -> None:
        self._post(event)
        if event.name not in self._backends and event.name in self._pools:
            return  # of the node itself the same is told
        self.wake()
        self.has_ollama = any(b.kind == Ollama.kind for b in self._backends.values())
        self.full_name.cache_clear()
        self.several = len(self._backends) > 1
        self.serve_several.cache_clear()
        self.on_change(event.name)

    def remove(self, name: str) -> bool:
        """Take a node out: nothing new starts there, what runs may finish."""
        backend = self._backends.pop(name, None)
        if backend is None:
            return False
        self._stop(backend)
        return True

    def _stop(self, backend: Backend) -> None:
        backend.stop()
        for name in backend.pool_names:
            self._pools.pop(name, None)
        self._leaving = [pool for pool in (*self._leaving, backend.pool) if pool.connections]

    def connections(self) -> int:
        """Return how many connections to nodes are open, idle or in use."""
        pools = (*(backend.pool for backend in self._backends.values()), *self._leaving)
        return sum(pool.connections for pool in pools)

    async def first_probes(self, limit_s: float) -> None:
        """Wait until every node has been asked once, but not for ever."""
        async with asyncio.timeout(limit_s):
            await asyncio.gather(*(backend.first_probe() for backend in self))

    def read_gpus(self) -> None:
        """Have the GPUs read anew, for someone who is looking; one round at a time."""
        if self._reading_gpus is None or self._reading_gpus.done():
            self._reading_gpus = asyncio.get_running_loop().create_task(self._read_gpus())

    async def _read_gpus(self) -> None:
        for backend in self:
            await backend.read_gpu()

    def stop(self) -> None:
        """Stop all; may be called twice."""
        if self._reading_gpus is not None:
            self._reading_gpus.cancel()
        for name in list(self._backends):
            self.remove(name)
        for name in list(self._expected):
            self._expect_no_more(name)

    def refresh(self, name: str) -> None:
        backend = self.get(name)
        if backend is not None:
            backend.refresh()

    def slots_changed(self, change: SlotsChanged) -> None:
        """Take the number of slots that the core has found."""
        backend = self._backends.get(change.name)
        if backend is not None:
            backend.slots_changed(change)

    def is_starting(self) -> bool:
        """Say whether some node has not said yet what it has: it may be any model."""
        return bool(self._expected) or any(
            backend.may_have_anything(self.offline_wait_s) for backend in self._backends.values()
        )

    def unasked(self) -> list[str]:
        """Return the nodes that have not been asked even once since the start of the gateway.

        Once all have been, one that comes later takes nothing from those there are.
        """
        if self._all_asked:
            return []
        unasked = [name for name, backend in self._backends.items() if not backend.was_probed]
        self._all_asked = not unasked
        return unasked

    def learn_absence(self, name: str, route: str, model: str) -> None:
        backend = self._backends.get(name)
        if backend is not None:
            backend.learn_absence(route, model)
            self.has_absences = True

    def lacks_route(self, model: str, family: str, route: str) -> bool:
        """Say whether nodes are up that have the model, and none of them has the route."""
        self.has_absences = any(backend.absences for backend in self._backends.values())
        up = [backend for backend in self._backends.values() if backend.serves(model, family)]
        return bool(up) and all(backend.lacks(route, model) for backend in up)

    def _serve_several(self, model: str, family: str) -> bool:
        """Say whether more than one node has the model, up or not."""
        told = [backend.told for backend in self._backends.values()]
        return sum(model in one.models and family in one.families for one in told) > 1

    def others_have(self, model: str, family: str, but: Sequence[str], route: str = "") -> bool:
        """Say whether a node other than those can serve the model now, as far as is known."""
        return any(
            name not in but
            and not backend.lacks(route, model)
            and backend.serves(model, family)
            and model not in backend.told.failing
            for name, backend in self._backends.items()
        )

    def knows(self, model: str, family: str) -> bool:
        """Say whether a node has the model, up or not: a job can wait for it."""
        return any(
            model in backend.told.models and family in backend.told.families
            for backend in self._backends.values()
        )

    def about(self, model: str) -> dict[str, object]:
        """Return what nodes say of a model; of several sizes of its context the smallest."""
        found: dict[str, object] = {}
        for backend in self._backends.values():
            if model in backend.told.models and backend.told.state == "online":
                for field, value in backend.about.get(model, {}).items():
                    known = found.setdefault(field, value)
                    if (
                        field in CONTEXT_FIELDS
                        and isinstance(known, int)
                        and isinstance(value, int)
                    ):
                        found[field] = min(known, value)
        return found

    def context_tokens(self, model: str) -> int | None:
        """Return what fits into the model's context on every node that has it; None: unknown."""
        sizes = (backend.contexts.get(model) for backend in self._backends.values())
        return min((size for size in sizes if size is not None), default=None)

    def models(self, family: str) -> list[str]:
        """Return what can be asked for in a family: the union over healthy nodes, in order."""
        return sorted(
            {
                model
                for backend in self._backends.values()
                if backend.told.state == "online" and family in backend.told.families
                for model in backend.told.models
            }
        )

    def _full_name(self, model: str) -> str:
        """Return the model that a short name stands for: Ollama's `gemma3` is `gemma3:latest`."""
        if any(model in backend.told.models for backend in self._backends.values()):
            return model
        full = f"{model}:latest"
        ollamas = (b for b in self._backends.values() if b.kind == Ollama.kind)
        return full if any(full in backend.told.models for backend in ollamas) else model

    def only_simulated(self, model: str) -> bool:
        """Say whether nothing but simulated nodes has the model: nobody must take it for real."""
        kinds = {b.kind for b in self._backends.values() if model in b.told.models}
        return kinds == {Simulated.kind}

    def any_up(self) -> bool:
        return any(backend.told.state == "online" for backend in self._backends.values())


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _nobody(_: Event) -> None:
    raise AssertionError("not connected")
