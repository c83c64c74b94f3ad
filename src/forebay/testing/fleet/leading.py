"""Who leads a fleet, as its gateways say; only to aim faults at, never to judge by."""

from typing import Any

from forebay.testing.fleet.asking import HOST
from forebay.testing.fleet.fleet import Fleet, Gateway
from forebay.testing.raw_client import RawClient


async def leader_of(fleet: Fleet) -> Gateway | None:
    """Return the gateway that leads now; None when nobody can say."""
    for gateway in fleet.gateways:
        if not gateway.running:
            continue
        try:
            async with await RawClient.connect(HOST, gateway.port) as client:
                client.timeout_s = 1.0
                await client.get("/v1/queue")
                told: Any = (await client.reply()).json
        except (OSError, EOFError, AssertionError, ValueError):
            continue
        for replica in told.get("replicas", ()):
            if replica.get("state") == "leading":
                return _at(fleet, str(replica.get("address", "")))
    return None


def _at(fleet: Fleet, address: str) -> Gateway | None:
    for gateway in fleet.gateways:
        if address.endswith(f":{gateway.port}"):
            return gateway
    return None
