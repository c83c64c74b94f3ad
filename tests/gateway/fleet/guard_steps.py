"""Guards at a gateway: what tests of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.guard.guard import Guard, GuardOptions
from forebay.nodes.gpu import GpuMeter

if TYPE_CHECKING:
    from forebay.gateway.gateway import Gateway
    from forebay.testing import FakeNode, Reply

    from ..conftest import Rig

TOKEN = "open-sesame"
HEADERS = {"X-Forebay-Guard-Token": TOKEN, "Content-Type": "application/json"}
TURNS = 2000


def beat(**changes: Any) -> dict[str, Any]:
    """Return a heartbeat as a guard sends it."""
    said = {
        "name": "g1",
        "url": "http://127.0.0.1:9",
        "instance": "instance-1",
        "state": "idle",
        "slots": 1,
    }
    return {**said, **changes}


async def start(rig: Rig, *nodes: FakeNode, **settings: Any) -> Gateway:
    """Start a gateway that takes guards."""
    more = {"guard": {"token_env": "T"}, "environ": {"T": TOKEN}, **settings}
    return await rig.start(*nodes, **more)


async def hear(rig: Rig, *headers: dict[str, str], **changes: Any) -> Reply:
    """Send a heartbeat."""
    client = await rig.client()
    await client.post("/guard/nodes", beat(**changes), headers[0] if headers else HEADERS)
    return await client.reply()


async def guard(rig: Rig, node: FakeNode, *gateways: Gateway, **options: Any) -> Guard:
    """Start a guard in front of the node, registered with these gateways."""
    urls = tuple(f"http://127.0.0.1:{gateway.port}" for gateway in gateways or (rig.gateway,))
    reading = options.pop("gpu", None)
    made = GuardOptions(
        backend=node.url, port=0, gateways=urls, token=TOKEN, **{"name": "g1", **options}
    )
    started = Guard(made, rig.clock, GpuMeter(lambda: reading))
    return await rig.stack.enter_async_context(started)


async def nodes(rig: Rig) -> dict[str, dict[str, Any]]:
    """Return what the gateway knows of its nodes, by name."""
    return {node["name"]: node for node in (await rig.get("/admin/nodes")).json["data"]}


async def until(rig: Rig, name: str, state: str | None) -> dict[str, Any]:
    """Wait, without letting time pass, until a node is in that state; None: until it is gone."""
    for _ in range(TURNS):
        known = (await nodes(rig)).get(name, {})
        if known.get("state") == state:
            return known
    raise AssertionError(f"{name} is {known.get('state')}, not {state}")


async def pass_beats(rig: Rig, count: int) -> None:
    """Let heartbeats come and go."""
    for _ in range(count):
        rig.clock.advance(2.0)
        await settle(rig)


async def settle(rig: Rig) -> None:
    """Let what is on its way arrive."""
    for _ in range(10):
        await rig.get("/health")
