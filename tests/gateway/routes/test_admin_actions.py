"""What an admin does is logged: with the key's name, and to what another key has, with both."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from ..jobs.job_steps import ENVIRON, KEYS, bearer, chat
from ..sessions.session_steps import new_session
from .test_batches import create, line

if TYPE_CHECKING:
    from ..conftest import Rig


async def post(rig: Rig, path: str, who: str, body: object = None) -> dict[str, object]:
    given = {"content-type": "application/json", **bearer(who)}
    reply = await rig.get(path, given, "POST", body=json.dumps(body).encode() if body else b"")
    assert reply.status < 300, reply.body
    answer: dict[str, object] = reply.json
    return answer


async def act(rig: Rig, who: str) -> list[tuple[str, object]]:
    """Do everything that an admin can do to what key `a` has; return what should be said of it."""
    job_id = (await post(rig, "/jobs", "A", chat()))["id"]
    session_id = await new_session(rig, bearer("A"))
    prompts = [
        (await post(rig, f"/session/{session_id}/prompt", "A", {"prompt": "hi"}))["promptId"]
        for _ in range(2)
    ]
    batch_id = (await create(rig, line("x"), bearer("A")))["id"]
    await rig.get(f"/jobs/{job_id}", bearer(who), "DELETE")
    await post(rig, f"/jobs/{job_id}/retry", who)
    await post(rig, f"/v1/batches/{batch_id}/cancel", who)
    await rig.get(f"/session/{session_id}/pending-prompts/{prompts[1]}", bearer(who), "DELETE")
    await post(rig, f"/session/{session_id}/cancel", who)
    assert (await rig.get(f"/session/{session_id}", bearer(who), "DELETE")).status == 200
    return [
        ("job cancelled", job_id),
        ("job retried", job_id),
        ("batch cancelled", batch_id),
        ("prompt removed", prompts[1]),
        ("prompt cancelled", prompts[0]),
        ("session deleted", session_id),
    ]


async def test_what_an_admin_does_to_another_keys_things_is_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start(await rig.node(), keys=KEYS, environ=ENVIRON)
    with caplog.at_level(logging.INFO, "forebay.gateway"):
        done = await act(rig, "ROOT")
        lines = [vars(one) for one in caplog.records if one.message.endswith(" by an admin")]
    said = [(one["message"], one["id"], one["owner"], one["by"]) for one in lines]
    assert said == [(f"{action} by an admin", one, "a", "root") for action, one in done]


async def test_what_a_key_does_to_its_own_things_is_not(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start(await rig.node(), keys=KEYS, environ=ENVIRON)
    with caplog.at_level(logging.INFO, "forebay.gateway"):
        await act(rig, "A")
    assert "by an admin" not in caplog.text


async def change_nodes(rig: Rig, headers: dict[str, str]) -> None:
    """Do everything that an admin can do to a node, and what cannot be done."""
    node = {"name": "more", "url": "http://127.0.0.1:9"}
    body = json.dumps(node).encode()
    for method, path, status in (
        ("POST", "/admin/nodes", 201),
        ("POST", "/admin/nodes", 409),  # it is there
        ("POST", "/admin/nodes/more/drain", 200),
        ("POST", "/admin/nodes/more/resume", 200),
        ("DELETE", "/admin/nodes/more", 204),
        ("DELETE", "/admin/nodes/more", 404),
        ("POST", "/admin/reload", 200),
    ):
        reply = await rig.get(path, headers, method, body=body if path == "/admin/nodes" else b"")
        assert reply.status == status, reply.body


DONE_TO_NODES = [
    ("node added", "more", "http://127.0.0.1:9"),
    ("node drained", "more", None),
    ("node resumed", "more", None),
    ("node removed", "more", None),
    ("settings reloaded", None, None),
]


@pytest.mark.parametrize("with_keys", [True, False])
async def test_what_an_admin_does_to_nodes_is_logged_once_with_the_key_s_name(
    rig: Rig, caplog: pytest.LogCaptureFixture, with_keys: bool
) -> None:
    if with_keys:
        await rig.start(await rig.node(), keys=KEYS, environ=ENVIRON)
    else:
        await rig.start(await rig.node())
    with caplog.at_level(logging.INFO, "forebay.gateway"):
        await change_nodes(rig, bearer("ROOT") if with_keys else {})
        lines = [vars(one) for one in caplog.records if "by" in vars(one)]
    assert [(one["message"], one.get("node"), one.get("url")) for one in lines] == DONE_TO_NODES
    assert {one["by"] for one in lines} == {"root" if with_keys else "a caller on this machine"}
