"""One gateway of a fleet as a program: `replica_child.py NAME PORT DATABASE NODE PLACES`.

`PLACES` is where all of them are, as JSON. It says "ready", and ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import uvloop

from forebay.gateway.gateway import Gateway
from forebay.settings import Settings
from forebay.testing import FakeDirectory


async def main(name: str, port: str, database: str, node: str, places: str) -> None:
    given: dict[str, Any] = {
        "server": {"port": int(port)},
        "nodes": [{"name": "n1", "url": node, "slots": 4}],
        "jobs": {"database": "sqlite://"},
        "sessions": {"database": database},
    }
    directory = FakeDirectory()
    directory.addresses = json.loads(places)
    gateway = Gateway(Settings(**given))
    gateway.parts.membership.join(directory.fleet(name))
    async with gateway:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
