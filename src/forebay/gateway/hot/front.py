"""The hot routes, from bytes to the relay: what stands behind the listening socket.

Callbacks all the way: no task, no logging call and no metric object per request. Everything that
is not an inference route is handed to the Starlette application.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from forebay.gateway.errors.rendering import preferred_language
from forebay.gateway.hot.callers import Caller, plain_id
from forebay.gateway.hot.client_sink import ClientSink
from forebay.gateway.hot.inflation import Inflation
from forebay.gateway.hot.paths import INFERENCE_ROUTES, find_route
from forebay.relay.call import InferenceCall
from forebay.relay.members import InvalidBody
from forebay.relay.openai import OPENAI
from forebay.relay.problem import Problem
from forebay.wire.heads import RequestHead, header_block, split_request, status_line
from forebay.wire.refusals import Refusal
from forebay.wire.server import Site

if TYPE_CHECKING:
    from collections.abc import Generator

    from forebay.gateway.errors.rendering import ErrorRenderer
    from forebay.gateway.hot.accounting import Accounting
    from forebay.gateway.hot.admission import Admission
    from forebay.gateway.hot.asgi_bridge import Cold
    from forebay.gateway.hot.inflation import Inflations
    from forebay.relay.fields import BodyReading
    from forebay.relay.relay import Relay
    from forebay.wire.connection import ServerConnection
    from forebay.wire.server import Delegate


logger = logging.getLogger("forebay.gateway")

SLICES_AT_ONCE: Final = 2
"""Of a body that is the only one to be read: together a millisecond at most."""


class Front(Site):
    """Answers hot requests through the relay, and hands on the others."""

    def __init__(
        self,
        admission: Admission,
        relay: Relay,
        errors: ErrorRenderer,
        accounting: Accounting,
        inflations: Inflations,
        cold: Cold,
    ) -> None:
        self.admission = admission
        self.reader = BodyReader()
        self._callers = admission.callers
        self._relay = relay
        self._errors = errors
        self._accounting = accounting
        self._inflations = inflations
        self._cold = cold

    # -- for the server

    def read_head(self, lines: list[bytes]) -> Caller:
        return Caller(*split_request(lines))

    def takes(self, head: RequestHead) -> bool:
        """Say whether this is an inference request."""
        return head.method == b"POST" and find_route(_path(head.target)) is not None

    def refusal(self, head: RequestHead, peer: str) -> Refusal | None:
        """Say why a request is refused whatever its body, of which nothing is read then."""
        assert isinstance(head, Caller)
        if head.generation != self._callers.generation:
            self._read_caller(head, peer)
        problem = head.problem
        return None if problem is None else Refusal(problem.code, problem.message, problem.param)

    def owner(self, head: RequestHead, peer: str) -> str:
        """Say whom the bytes of a body are counted for: a key, else an address."""
        assert isinstance(head, Caller)
        if head.generation != self._callers.generation:
            self._read_caller(head, peer)
        return head.payer

    def delegate(self, connection: ServerConnection) -> Delegate:
        """Let the application answer."""
        return self._cold.borrow(connection)

    def answer(self, connection: ServerConnection, head: RequestHead, body: bytes) -> None:
        """Admit a request and send it on its way."""
        assert isinstance(head, Caller)
        if head.generation != self._callers.generation:
            self._read_caller(head, connection.peer)
        sink = connection.kept
        if isinstance(sink, ClientSink):
            sink.begin(head)
        else:
            sink = connection.kept = ClientSink(connection, head, self._errors)
        connection.responder = sink
        if head.problem is not None:
            self._refuse(sink, head.problem)
        elif not head.coding:
            self._admit(sink, body)
        else:
            self._inflate(sink, body)

    def _admit(self, sink: ClientSink, body: bytes) -> None:
        """Read a body, here or in the turns to come."""
        caller = sink.caller
        admitted = self.admission.admit(caller, body) if caller.form is None else None
        if admitted is None:
            LargeBody(self, sink).begin(body)
        else:
            self.submit(sink, admitted)

    def submit(self, sink: ClientSink, admitted: InferenceCall | Problem) -> None:
        """Send an admitted call on its way, or say what is wrong with it."""
        if isinstance(admitted, InferenceCall):
            admitted.charge = sink.connection.charge
            exchange = self._relay.submit(admitted, sink)
            if not exchange.ended:
                sink.exchange = exchange
        else:
            self._refuse(sink, admitted)

    def _inflate(self, sink: ClientSink, body: bytes) -> None:
        """Have a body inflated that comes as gzip, and read it then."""

        def inflated(result: bytes | Problem) -> None:
            sink.connection.responder = sink
            if isinstance(result, Problem):
                self._refuse(sink, result)
            else:
                self._admit(sink, result)

        Inflation(self._inflations, sink.connection, sink.caller.payer, inflated).begin(body)

    def refuse(self, connection: ServerConnection, refusal: Refusal) -> None:
        """Answer a request that could not be read; the connection closes after it."""
        problem = Problem(refusal.code, refusal.message, refusal.param)
        found = find_route(_path(connection.target))
        family, route = (OPENAI, "other") if found is None else (found.family, found.route)
        head = connection.head
        language = preferred_language(head.get(b"accept-language") if head is not None else None)
        rendered = self._errors.render(problem, family, language)
        own_id = plain_id(head.get(b"x-request-id") if head is not None else None)
        request_id = self.admission.unique_id(own_id)
        asked = None
        if isinstance(head, Caller) and head.generation == self._callers.generation:
            asked = self._callers.arrival(head, request_id)
        self._accounting.refused(route, refusal.code, asked)
        connection.write(
            b"%b%bx-request-id: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (
                status_line(refusal.status or rendered.status),
                header_block(rendered.headers),
                request_id.encode(),
                len(rendered.body),
                rendered.body,
            )
        )

    # -- inside

    def _read_caller(self, caller: Caller, peer: str) -> None:
        """Read what a head says, for the first time or because the keys have changed."""
        self._callers.read(caller, peer)
        target = caller.target
        path = _path(target)
        found = INFERENCE_ROUTES.get(path) or find_route(path)
        assert found is not None
        caller.family, caller.route, caller.model = found.family, found.route, found.model
        caller.reader = found.family.loose_reader if found.model else found.family.reader
        caller.node_target = target if found.path == path else found.path + target[len(path) :]
        caller.problem = self.admission.refusal(caller)

    def _refuse(self, sink: ClientSink, problem: Problem) -> None:
        caller = sink.caller
        request_id = self.admission.unique_id(caller.request_id)
        asked = self._callers.arrival(caller, request_id)
        self._accounting.refused(caller.route, problem.code, asked)
        sink.refuse_early(problem, request_id)


class BodyReader:
    """Reads large bodies on the loop, a slice a turn, of one body after the other.

    So nobody waits for longer than a slice takes, however many bodies come and whatever is in
    them, and a body whose client leaves is dropped at once.
    """

    __slots__ = ("_bodies",)

    def __init__(self) -> None:
        self._bodies: deque[LargeBody] = deque()

    def read(self, body: LargeBody) -> None:
        """Read a body from now on; a few slices at once where no other is being read."""
        if not self._bodies:
            for _ in range(SLICES_AT_ONCE):
                if not body.step():
                    return
            asyncio.get_running_loop().call_soon(self._turn)
        self._bodies.append(body)

    def _turn(self) -> None:
        body = self._bodies.popleft()
        try:
            if body.step():
                self._bodies.append(body)
        finally:  # whatever fails with one, the others are read
            if self._bodies:
                asyncio.get_running_loop().call_soon(self._turn)


class LargeBody:
    """A body that is read in slices, while its client may leave."""

    __slots__ = ("_front", "_sink", "_slices")

    def __init__(self, front: Front, sink: ClientSink) -> None:
        self._front = front
        self._sink = sink
        self._slices: Generator[int, None, BodyReading] | None = None

    def begin(self, body: bytes) -> None:
        """Read it; the request goes on when that is done."""
        caller = self._sink.caller
        if caller.form is not None:
            self._slices = caller.form.read_in_slices(body)
        else:
            self._slices = caller.reader.read_in_slices(body)
        self._sink.connection.responder = self
        self._front.reader.read(self)

    def step(self) -> bool:
        """Read one slice; False where there is nothing more to read."""
        slices, sink, admitted = self._slices, self._sink, None
        if slices is None:
            return False  # its client has left
        try:
            next(slices)
            return True
        except StopIteration as end:
            read: BodyReading = end.value
            admitted = self._front.admission.make(sink.caller, *read)
        except InvalidBody as error:
            admitted = Problem(error.code, str(error), error.param)
        except Exception:  # a bug of ours: the client must not wait for ever
            logger.exception("reading a large body failed")
            admitted = Problem("internal_error", "an internal error; the log has the details")
        self._slices = None
        sink.connection.responder = sink
        try:
            self._front.submit(sink, admitted)
        except Exception:
            logger.exception("answering a request failed")
            sink.connection.abort()
        return False

    def client_left(self) -> None:
        """Drop the body."""
        self._slices = None

    def client_is_slow(self) -> None:
        """Nothing is being written yet."""

    def client_keeps_up(self) -> None:
        """Nothing is being written yet."""


def _path(target: bytes) -> bytes:
    return target if b"?" not in target else target.partition(b"?")[0]
