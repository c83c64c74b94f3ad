"""Calls of `/acp` whose sessions another gateway has: sent there as one batch, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.fleet.peers import HEAD_S
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.gateway.fleet.peers import Peers

ANSWER_BYTES_MAX = 1_048_576
"""What the answers to a batch may weigh: each has an id of the caller's, and a few fields."""


async def ask_replica(
    replicas: Peers, request: Request, name: str, calls: list[dict[str, Any]]
) -> list[dict[str, Any] | None]:
    """Return the answer to each call, None for notifications; raises HttpError where there is none.

    The calls are sound, so that exactly those with an id are answered, and in their order.
    """
    waits = any(call["method"] == "session/branch" for call in calls)
    limit_s = None if waits else HEAD_S
    body = msgspec.json.encode(calls)
    status, whole = await replicas.ask(request, name, body, ANSWER_BYTES_MAX, limit_s)
    if status not in (200, 204):
        raise HttpError.of(_problem_of(whole, name))
    try:
        told = msgspec.json.decode(whole, type=list[dict[str, Any]]) if whole else []
    except msgspec.DecodeError:
        raise HttpError.of(_odd(name)) from None
    if len(told) != sum("id" in call for call in calls):
        raise HttpError.of(_odd(name))
    answers = iter(told)
    return [next(answers) if "id" in call else None for call in calls]


def _problem_of(body: bytes, name: str) -> Problem:
    """Return what another gateway says about all of it: the key, the Host, the time."""
    try:
        said = msgspec.json.decode(body, type=_PeerErrorBody).error
    except msgspec.DecodeError:
        return _odd(name)
    return Problem(said.code, said.message)


def _odd(name: str) -> Problem:
    return Problem("replica_unavailable", f"gateway {name} gave an answer that makes no sense")


class _PeerError(msgspec.Struct):
    code: str
    message: str


class _PeerErrorBody(msgspec.Struct):
    error: _PeerError
