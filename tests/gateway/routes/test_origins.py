"""A page of another origin changes nothing, whatever it calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from starlette.routing import Route

from forebay.gateway.application import make_routed

if TYPE_CHECKING:
    from ..conftest import Rig

SAFE = {"GET", "HEAD"}


@pytest.mark.parametrize("origin", ["http://evil.test", "null"])
async def test_no_route_that_changes_something_answers_a_page_of_another_origin(
    rig: Rig, origin: str
) -> None:
    await rig.start(await rig.node())
    headers = {"origin": origin, "content-type": "application/json"}
    allowed, asked = [], 0
    for route in make_routed(rig.gateway.parts).routes:
        assert isinstance(route, Route)
        for method in (route.methods or set()) - SAFE:
            path = re.sub(r"\{[^}]*\}", "x", route.path)
            reply = await rig.get(path, headers, method, body=b"{}")
            asked += 1
            if (reply.status, b"forbidden_host" in reply.body) != (403, True):
                allowed.append((method, path, reply.status, reply.body))
    assert not allowed
    assert asked > 20
