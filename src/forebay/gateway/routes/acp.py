"""`/acp`: sessions over JSON-RPC 2.0.

One call or a batch; a call without an id is a notification and gets no answer. The calls of a
batch are started in their order and run concurrently, so that a branch, which waits for its turn,
does not delay the calls behind it. The status is 200 whatever the calls return, 204 where there is
nothing to return; only authorisation and the size of the body are HTTP errors (401, 403, 413).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.fleet.peers import HEAD_S
from forebay.gateway.http.json_body import check_text, in_turns
from forebay.gateway.http.sse import while_connected
from forebay.gateway.routes.json_answer import json_answer
from forebay.gateway.routes.sessions import BODY_BYTES_MAX
from forebay.relay.members import InvalidBody, read_members
from forebay.sessions.errors import PromptQueueFull, SessionRejected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from forebay.gateway.fleet.peers import Peers
    from forebay.gateway.hot.callers import Caller
    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.sessions.service import SessionService
    from forebay.relay.problem import Problem
    from forebay.sessions.session import Session

logger = logging.getLogger("forebay.sessions")

CALLS_MAX = 64
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
REFUSED = -32000
"""Every rejection by a session; `data.errorKind` says which."""
ANSWER_BYTES_MAX = 1_048_576
"""What the answers of a peer to a batch may weigh: each has the caller's id and a few fields."""
ABOUT_PARAMS = ("invalid_request", "unsupported", "history_too_large")

Answer = dict[str, Any]
_DECODER: Final = msgspec.json.Decoder(float_hook=float)
"""Numbers are left to Python, as in `json_body`."""


class RpcError(Exception):
    """One call fails."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error: Answer = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


class AcpRoutes:
    """The route and its JSON-RPC methods."""

    def __init__(
        self, authorizer: Authorizer, reader: RequestReader, peers: Peers, service: SessionService
    ) -> None:
        self._authorizer = authorizer
        self._reader = reader
        self._peers = peers
        self._service = service
        self._methods: dict[str, Callable[[Answer, Caller, Request], Awaitable[object]]] = {
            "session/new": self._new,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
            "session/branch": self._branch,
        }

    def routes(self) -> list[Route]:
        return [Route("/acp", self.call, methods=["POST"])]

    async def call(self, request: Request) -> Response:
        caller = self._authorizer.caller(request)
        body = await self._reader.read(request, BODY_BYTES_MAX)
        try:
            await in_turns(check_text(body))
            given = _DECODER.decode(body)
        except (msgspec.DecodeError, InvalidBody, RecursionError):
            return _answered(_failed(None, RpcError(PARSE_ERROR, "the body is not valid JSON")))
        try:
            if isinstance(given, dict):
                await in_turns(read_members(body))
        except InvalidBody as error:
            return json_answer(_failed(None, RpcError(INVALID_REQUEST, str(error))), 400)
        if not isinstance(given, list):
            (answer,) = await while_connected(request, self._all([given], caller, request))
            return _answered(answer)
        if not 1 <= len(given) <= CALLS_MAX:
            words = f"a batch holds 1 to {CALLS_MAX} calls"
            return _answered(_failed(None, RpcError(INVALID_REQUEST, words)))
        answers = await while_connected(request, self._all(given, caller, request))
        return _answered([answer for answer in answers if answer is not None] or None)

    async def _all(
        self, calls: list[object], caller: Caller, request: Request
    ) -> list[Answer | None]:
        """Run the calls, those of other gateways' sessions over there, all concurrently."""
        there = await self._elsewhere(calls, request)
        away = {at for places in there.values() for at in places}
        here = [at for at in range(len(calls)) if at not in away]
        answers: list[Answer | None] = [None] * len(calls)

        async def do(at: int) -> None:
            answers[at] = await self._one(calls[at], caller, request)

        async def forward(name: str, places: list[int]) -> None:
            sent: list[Answer] = [calls[at] for at in places]  # type: ignore[misc] # `_is_valid` checked
            told = await self._there(sent, request, name)
            for at, answer in zip(places, told, strict=True):
                answers[at] = answer

        asked = (forward(name, places) for name, places in there.items())
        await asyncio.gather(*(do(at) for at in here), *asked)
        return answers

    async def _there(self, calls: list[Answer], request: Request, name: str) -> list[Answer | None]:
        """Have another gateway run these calls; where it cannot, each fails."""
        try:
            return await _forwarded(self._peers, request, name, calls)
        except HttpError as error:
            rejection = _rejection(error)
            return [_failed(_id_of(call), rejection) if "id" in call else None for call in calls]

    async def _elsewhere(self, calls: list[object], request: Request) -> dict[str, list[int]]:
        """Return which calls other gateways must answer, in their order."""
        found: dict[str, list[int]] = {}
        for at, call in enumerate(calls):
            params = call.get("params") if isinstance(call, dict) else None
            session_id = params.get("sessionId") if isinstance(params, dict) else None
            if not isinstance(session_id, str) or not self._is_valid(call):
                continue
            try:
                name = await self._peers.of_session(session_id, request)
            except HttpError:
                continue  # the call fails with it when it looks for its session
            if name is not None:
                found.setdefault(name, []).append(at)
        return found

    def _is_valid(self, call: object) -> bool:
        """Say whether a call can be forwarded; invalid ones are answered here."""
        try:
            return _read(call)[0] in self._methods
        except RpcError:
            return False

    async def _one(self, call: object, caller: Caller, request: Request) -> Answer | None:
        """Run one call; return its answer, None for a notification."""
        call_id = _id_of(call)
        wants_answer = not isinstance(call, dict) or "id" in call
        try:
            method, params = _read(call)
            work = self._methods.get(method)
            if work is None:
                raise RpcError(METHOD_NOT_FOUND, f"there is no method {method[:64]!r}")
            answer: Answer = {"jsonrpc": "2.0", "id": call_id, "result": None}
            answer["result"] = await work(params, caller, request)
        except RpcError as error:
            wants_answer = wants_answer or error.error["code"] == INVALID_REQUEST
            answer = _failed(call_id, error)
        except (HttpError, SessionRejected) as error:
            answer = _failed(call_id, _rejection(error))
        except Exception:
            logger.exception("JSON-RPC call failed")
            words = "an internal error; the log has the details"
            answer = _failed(call_id, RpcError(INTERNAL_ERROR, words))
        return answer if wants_answer else None

    # -- the methods

    async def _new(self, params: Answer, caller: Caller, request: Request) -> object:
        return await self._service.create(params, caller)

    async def _prompt(self, params: Answer, caller: Caller, request: Request) -> object:
        session = await self._session(params, caller, request)
        return await self._service.prompt(session, params, caller, request)

    async def _cancel(self, params: Answer, caller: Caller, request: Request) -> object:
        session = await self._session(params, caller, request)
        return await self._service.cancel(session, params, caller)

    async def _branch(self, params: Answer, caller: Caller, request: Request) -> object:
        return await self._service.branch(await self._session(params, caller, request))

    async def _session(self, params: Answer, caller: Caller, request: Request) -> Session:
        session_id = params.pop("sessionId", None)
        if not isinstance(session_id, str):
            raise RpcError(INVALID_PARAMS, "`sessionId` must be a string", {"param": "sessionId"})
        # Raises for a call that was forwarded to the wrong gateway.
        await self._peers.of_session(session_id, request)
        return await self._service.find(session_id, caller)


def _id_of(call: object) -> str | int | float | None:
    """Return the id that an answer carries: null where the call has none that makes sense."""
    call_id = call.get("id") if isinstance(call, dict) else None
    is_id = isinstance(call_id, str | int | float) and not isinstance(call_id, bool)
    return call_id if is_id else None


def _read(call: object) -> tuple[str, Answer]:
    """Return the method and the params of a call; raises RpcError."""
    if not isinstance(call, dict) or call.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'a call is an object with "jsonrpc": "2.0"')
    method, params = call.get("method"), call.get("params", {})
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "`method` must be a string")
    if call.get("id") is not None and _id_of(call) is None:
        raise RpcError(INVALID_REQUEST, "`id` must be a string, a number or null")
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "`params` must be an object", {"param": "params"})
    return method, params


def _rejection(error: HttpError | SessionRejected) -> RpcError:
    if isinstance(error, PromptQueueFull):
        data: Answer = {
            "errorKind": error.problem.code,
            "sessionId": error.session_id,
            "limit": error.limit,
            "pendingCount": error.pending_count,
        }
        return RpcError(REFUSED, error.problem.message, data)
    problem: Problem = error.problem
    data = {"errorKind": problem.code}
    if problem.param is not None:
        data["param"] = problem.param
    code = INVALID_PARAMS if problem.code in ABOUT_PARAMS else REFUSED
    return RpcError(code, problem.message, data)


def _failed(call_id: object, error: RpcError) -> Answer:
    return {"jsonrpc": "2.0", "id": call_id, "error": error.error}


def _answered(answer: object) -> Response:
    return Response(status_code=204) if answer is None else json_answer(answer)


# -- calls that another gateway runs


class _PeerError(msgspec.Struct):
    code: str
    message: str


class _PeerErrorBody(msgspec.Struct):
    error: _PeerError


async def _forwarded(
    peers: Peers, request: Request, name: str, calls: list[Answer]
) -> list[Answer | None]:
    """Return a peer's answer to each call, None for notifications; raises HttpError.

    The calls are valid, so that exactly those with an id are answered, and in their order.
    """
    waits = any(call["method"] == "session/branch" for call in calls)
    body = msgspec.json.encode(calls)
    limit_s = None if waits else HEAD_S
    status, answer = await peers.ask(request, name, body, ANSWER_BYTES_MAX, limit_s)
    try:
        if status not in (200, 204):  # all of it failed: the key, the Host, the time
            error = msgspec.json.decode(answer, type=_PeerErrorBody).error
            raise HttpError(error.code, error.message)
        answers = msgspec.json.decode(answer, type=list[Answer]) if answer else []
    except msgspec.DecodeError:
        raise _invalid_answer(name) from None
    if len(answers) != sum("id" in call for call in calls):
        raise _invalid_answer(name)
    left = iter(answers)
    return [next(left) if "id" in call else None for call in calls]


def _invalid_answer(name: str) -> HttpError:
    return HttpError("replica_unavailable", f"gateway {name} gave an invalid answer")
