"""Queries about a model that do not run it, such as `/tokenize` and `/api/show`: no slot is taken.

They count in the requests per minute of their key, bypass the queue and go to any online node that
has the model, and to the next one where that fails. While all nodes of the model are starting,
loading or briefly offline, queries wait as other requests do. Concurrency per node is bounded; a
query ends when its client disconnects.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from starlette.responses import Response
from starlette.routing import Route

from forebay.core import Arrived
from forebay.errors import BackendFailed
from forebay.gateway.errors.http_error import HttpError, invalid, shutting_down
from forebay.gateway.hot.admission import FAMILIES
from forebay.gateway.hot.inflation import BadGzip, Inflater
from forebay.gateway.http.json_body import in_turns, take_room
from forebay.gateway.http.sse import while_connected
from forebay.relay.answer import missing_route_message, route_missing, what_is_absent
from forebay.relay.fields import BodyReading, find_model, prompt_tokens, replace_model
from forebay.relay.members import InvalidBody
from forebay.relay.ollama import OllamaLooseFields
from forebay.relay.problem import Problem, node_failed
from forebay.wire.fetch import fetch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from forebay.gateway.hot.accounting import Accounting
    from forebay.gateway.hot.admission import Admission
    from forebay.gateway.hot.callers import Caller
    from forebay.gateway.hot.model_names import ModelNames
    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.live_settings import LiveSettings
    from forebay.gateway.readiness import Readiness
    from forebay.nodes.backend import Backend
    from forebay.nodes.registry import Nodes
    from forebay.relay.family import Family
    from forebay.relay.relay import Relay
    from forebay.relay.reservation import Reservation
    from forebay.wire.fetch import Fetched

CONCURRENT_MAX: Final = 16
"""At one node; more wait for those before them."""
BODY_BYTES_MAX: Final = 4_194_304
"""A million tokens."""
ANSWER_S: Final = 30.0
"""Tokenizing takes milliseconds, but an engine may do it between two steps of a batch."""
BACKOFF_S: Final = 1.0
"""How soon a node that was busy is asked again."""


class ModelQuery:
    """One query, as its request says."""

    def __init__(self, caller: Caller, request_id: str, model: str, body: bytes) -> None:
        self.family = caller.family
        self.route = caller.route
        self.caller = caller
        self.id = request_id
        self.model = model
        self.body = body
        self.absent: Problem | None = None
        """The error of a node without this route, if one was asked."""
        self.was_busy = False
        """Whether a node has just rejected it as too busy."""


class _Counted(asyncio.Future[Problem | None]):
    """Why a query is over its key's rate, or that it is not."""

    def granted(self, _: Reservation) -> None:
        self.set_result(None)

    def refused(self, _: Reservation, problem: Problem) -> None:
        self.set_result(None if problem.code == "counted" else problem)


@dataclass(frozen=True)
class ModelQueryRoutes:
    """`/tokenize`, `/detokenize`, `/v1/messages/count_tokens`, `/api/show`."""

    authorizer: Authorizer
    reader: RequestReader
    readiness: Readiness
    settings: LiveSettings
    admission: Admission
    models: ModelNames
    nodes: Nodes
    accounting: Accounting
    relay: Relay
    _concurrent: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    """By node."""

    def routes(self) -> list[Route]:
        return [
            Route(route, self._answers(family, route), methods=["POST"])
            for family in FAMILIES
            for route in family.free_routes
        ]

    def _answers(self, family: Family, route: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            code = "internal_error"
            try:
                asked = await self._read(request, family, route)
                await self._count(asked)
                answered = await while_connected(request, self._relayed(asked), "cancelled")
                code = "served" if answered.status_code < 400 else "passed_through"
                return answered
            except HttpError as refused:
                code = refused.problem.code
                raise
            finally:
                self.accounting.refused(route, code)

        return answer

    async def _read(self, request: Request, family: Family, route: str) -> ModelQuery:
        caller = self.authorizer.caller(request)
        bytes_max = min(BODY_BYTES_MAX, self.settings.current.server.body_max_bytes)
        body = await self.reader.read(request, bytes_max)
        if caller.coding:
            body = await _inflated(request, caller, body, bytes_max)
        reading = await _read_fields(family, body)
        asked, name = _asked_model(reading)
        model = self.admission.resolve(asked)[0] if asked else self._only_model(caller, family)
        if asked and not self.admission.may_use(caller.key, asked):
            raise HttpError("forbidden", "this key may not use this model", "model")
        body = reading.body
        if asked and model != asked:
            body = replace_model(body, find_model(body, name), model)
        caller.family, caller.route = family, route
        return ModelQuery(caller, self.admission.unique_id(caller.request_id), model, body)

    async def _count(self, asked: ModelQuery) -> None:
        """Count a query in the rate of its key; raises HttpError where that is used up."""
        key = asked.caller.key
        if key is None or not key.limits.requests_per_minute:
            return
        counted = _Counted()
        arrival = Arrived(self.admission.unique_id(""), "", key=key.owner)
        reservation = self.relay.reserve(arrival, counted)
        try:
            await asyncio.wait([counted])
        finally:
            reservation.give_up()
        if (problem := counted.result()) is not None:
            raise HttpError.of(problem)

    def _only_model(self, caller: Caller, family: Family) -> str:
        """Return the default where no model is named: the only one; raises HttpError."""
        names = self.models.usable(caller.key, family.name)
        models = {self.models.aliased(name) for name in names}
        if len(models) != 1:
            there = "there is none yet" if not models else f"there are {len(models)}"
            raise invalid(f"`model` is required: {there}", "model")
        return models.pop()

    async def _relayed(self, asked: ModelQuery) -> Response:
        """Try one node after the other, and again once one is back; raises HttpError."""
        nodes, own_s = self.nodes, asked.caller.max_wait_s
        limit_s = self.settings.current.queue.max_wait_seconds
        ends_s = nodes.now_s() + (limit_s if own_s is None else min(limit_s, own_s))
        while not self.readiness.draining:
            asked.was_busy = False
            answered = await self._ask_each(asked)
            if answered is not None:
                return answered
            problem = self._why_not(asked)
            left_s = ends_s - nodes.now_s()
            if left_s <= 0.0 or not (asked.was_busy or self._may_come(asked)):
                raise HttpError.of(problem)
            if asked.was_busy:
                await nodes.pause(min(BACKOFF_S, left_s), for_change=False)
            else:
                await nodes.pause(left_s)
        raise shutting_down()

    async def _ask_each(self, asked: ModelQuery) -> Response | None:
        """Return the first answer below 500, else the last one; None where there is none."""
        last: Response | None = None
        for backend in self._nodes(asked):
            limit = self._concurrent.get(backend.name)
            if limit is None:
                limit = self._concurrent[backend.name] = asyncio.Semaphore(CONCURRENT_MAX)
            async with limit:
                answer = await _ask(backend, asked)
            if answer is None:
                continue
            last = _response(answer, backend.name, asked.id)
            if answer.status < 500:
                return last
        return last

    def _nodes(self, asked: ModelQuery) -> list[Backend]:
        """Return the nodes that can answer, those with the model loaded first."""
        found = [backend for backend in self._able(asked) if backend.told.state == "online"]
        return sorted(found, key=lambda one: asked.model not in (one.told.loaded or (asked.model,)))

    def _able(self, asked: ModelQuery) -> list[Backend]:
        """Return the nodes that have the model and the route, whatever their state."""
        return [
            backend
            for backend in self.nodes
            if asked.model in backend.told.models
            and asked.family.name in backend.told.families
            and not backend.lacks(asked.route, asked.model)
        ]

    def _may_come(self, asked: ModelQuery) -> bool:
        """Say whether a node that may answer is starting, loading or briefly offline."""
        nodes = self.nodes
        return nodes.is_starting() or any(
            backend.told.state in ("online", "loading")
            or nodes.now_s() - backend.state_since_s < nodes.offline_wait_s
            for backend in self._able(asked)
        )

    def _why_not(self, asked: ModelQuery) -> Problem:
        nodes, family = self.nodes, asked.family.name
        if nodes.lacks_route(asked.model, family, asked.route):
            return asked.absent or Problem(
                "route_not_supported", missing_route_message(asked.route), "model"
            )
        if nodes.knows(asked.model, family):
            return Problem("no_node", "no node of this model answers now")
        if nodes.is_starting():
            return Problem("model_loading", "some nodes have not reported their models yet")
        if any(asked.model in backend.told.models for backend in nodes):
            return Problem("route_not_supported", "the model is known, but not in this API family")
        return self.models.unknown(asked.model, asked.caller.key, family, "model")


async def _ask(backend: Backend, asked: ModelQuery) -> Fetched | None:
    """Ask one node; return None where another should be tried. Raises HttpError."""
    caller = asked.caller
    headers = caller.header_block + b"x-request-id: %b\r\n" % asked.id.encode()
    head = backend.request(asked.route.encode(), headers, caller.credentials, len(asked.body))
    try:
        answer = await _fetched(backend, head, asked.body)
    except BackendFailed:
        backend.refresh()
        return None
    if answer.status in (401, 403):
        words = f"the node refused our credentials ({answer.status})"
        raise HttpError.of(node_failed(words, backend.name, 1))
    if answer.status in (429, 503):
        asked.was_busy = True
        backend.refresh()
        return None
    absent = what_is_absent(answer.status, answer.body, asked.model, is_rare=True)
    if absent == "route":
        backend.learn_absence(asked.route, asked.model)
        asked.absent = route_missing(asked.route, backend.name, answer.status, answer.body)
        return None
    if absent == "model":
        backend.refresh()
    return answer


async def _fetched(backend: Backend, head: bytes, body: bytes) -> Fetched:
    """Use an idle connection, and once more a new one where that was closed."""
    try:
        return await fetch(backend.pool, head, body, limit_s=ANSWER_S)
    except BackendFailed:
        return await fetch(backend.pool, head, body, limit_s=ANSWER_S, fresh=True)


def _response(answer: Fetched, node: str, request_id: str) -> Response:
    headers = {
        "content-type": answer.headers.get("content-type", "application/json"),
        "x-request-id": request_id,
        "x-forebay-node": node,
        "x-queue-status": "direct",
        "x-queue-wait-ms": "0",
    }
    return Response(answer.body, answer.status, headers)


async def _inflated(request: Request, caller: Caller, body: bytes, bytes_max: int) -> bytes:
    """Decompress a body; raises HttpError."""
    if caller.coding != b"gzip":
        words = "send the body uncompressed, or as gzip"
        raise HttpError("unsupported", words, "content-encoding")
    inflater = Inflater(body)
    await take_room(request, bytes_max)
    try:
        if not await asyncio.to_thread(inflater.inflate, bytes_max):
            words = f"the body is larger than {bytes_max} bytes"
            raise HttpError("body_too_large", words)
    except BadGzip as error:
        raise invalid(str(error), "body") from None
    return inflater.made.take()


async def _read_fields(family: Family, body: bytes) -> BodyReading:
    try:
        fields = family.loose_reader.read_small(body)
        if fields is not None:
            return BodyReading(fields, body, prompt_tokens(body))
        return await in_turns(family.loose_reader.read_in_slices(body))
    except InvalidBody as error:
        raise invalid(str(error), error.param) from None


def _asked_model(reading: BodyReading) -> tuple[str, str]:
    """Return the model that a body names, and the field that names it."""
    fields = reading.fields
    if not fields.model and isinstance(fields, OllamaLooseFields):
        return fields.name, "name"
    return fields.model, "model"
