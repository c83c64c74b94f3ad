"""What the demo runs: a real gateway in front of three simulated nodes, in one process."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from forebay.api.events import Words
from forebay.gateway.gateway import Gateway
from forebay.nodes.adapters.simulated import Simulated
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import NodeSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

SMALL: Final = "sim-small"
LARGE: Final = "sim-large"
MODELS: Final = (f"{SMALL}@8", f"{LARGE}@20")
"""Their sizes in GB: no node has room for both, so that serving the other one costs a load."""
VRAM_GB: Final = 24.0
NODES: Final = {"gpu1": 2, "gpu2": 2, "gpu3": 1}
"""How many slots each node has."""
QUEUE_MAX: Final = 40


class DemoSetup:
    """Nodes that can die and return, the gateway, and the captions."""

    def __init__(
        self,
        folder: Path,
        say: Callable[[Words], None],
        *,
        port: int = 0,
        pace: float = 1.0,
    ) -> None:
        """`pace` multiplies every duration: 1 is for people to watch, less for tests."""
        self.pace = pace
        self._say = say
        self._settings = Settings.model_validate(
            {
                "server": {"port": port, "access_log": False},
                # The newest of whoever has most in line gives way to someone with less.
                "queue": {"max_size": QUEUE_MAX, "when_full": "displace"},
                "jobs": {"database": f"sqlite:///{folder}/demo.db"},
            }
        )
        self._options = {
            name: SimOptions(
                models=MODELS,
                slots=slots,
                ttft_s=0.25 * pace,
                tokens_per_second=40.0 / pace,
                load_s=2.0 * pace,
                vram_gb=VRAM_GB,
            )
            for name, slots in NODES.items()
        }
        self._nodes: dict[str, SimNode] = {}
        self._ports: dict[str, int] = {}
        self._stack = AsyncExitStack()
        self.gateway: Gateway

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def __aenter__(self) -> Self:
        """Start everything; raises OSError when the port is taken."""
        try:
            self.gateway = Gateway(self._settings)
            self._stack.push_async_callback(self.gateway.stop, 0.0)
            self.gateway.parts.nodes.expecting = True
            await self.gateway.start()
            for name in NODES:
                await self.start_node(name)
                url = self._nodes[name].url
                self.gateway.parts.nodes.add(NodeSettings(name=name, url=url, kind=Simulated.kind))
            await self.gateway.parts.nodes.first_probes(10.0)
            self.gateway.parts.nodes.expecting = False
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def start_node(self, name: str) -> None:
        """Start a node with the small model, on the port that it had before if it ever had one.

        With empty memories all requests would wait for the node that gets the first one, as far as
        a load, whose time nobody knows yet, is taken to be slower than the line.
        """
        node = SimNode(self._options[name], port=self._ports.get(name, 0))
        with node.engine.slot(SMALL):
            pass
        await node.start()
        self._nodes[name] = node
        self._ports[name] = urlsplit(node.url).port or 0

    async def kill_node(self, name: str) -> None:
        """End a node in the middle of whatever it does."""
        await self._nodes[name].kill()

    def running_on(self, name: str) -> int:
        return self._nodes[name].engine.busy

    def state_of(self, name: str) -> str:
        backend = self.gateway.parts.nodes.get(name)
        assert backend is not None
        return backend.told.state

    @property
    def retries(self) -> int:
        return self.gateway.parts.relay.retries.total

    async def swaps(self) -> int:
        """Return how often a model had to be loaded to go on."""
        return (await self.gateway.parts.queue_observer.snapshot()).totals.swaps

    async def waiting(self) -> int:
        return (await self.gateway.parts.queue_observer.snapshot()).waiting

    def caption(self, en: str, ja: str) -> None:
        """Say what is going on, on the page and on the console."""
        words = Words(en, ja)
        self.gateway.parts.dashboard_feed.caption = words
        self._say(words)

    async def _close(self) -> None:
        await self._stack.aclose()
        for node in self._nodes.values():
            await node.stop()
