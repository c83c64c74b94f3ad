"""HTTP/1.1 as the fake node speaks it: connections, a strict parser, the answers to probes.

Written apart from the product's own parser on purpose: were the two the same code, a request that
both misread alike would pass every test. It is stricter than a server need be (RFC 9112): whatever
could be read in two ways is refused.
"""

import asyncio
import contextlib
import json
import re
import select
import socket
import struct
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, Protocol

Kind = Literal["llama.cpp", "openai", "ollama"]
Health = Literal["ok", "loading", "error", "hang"]

REQUEST_LINE = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.([01])")
HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")
HEAD_BYTES_MAX = 1 << 20  # far above any real head; only stops a runaway sender


class MalformedRequest(Exception):
    """The peer sent what is not a well-formed, unambiguous HTTP/1.1 request."""


@dataclass(frozen=True, eq=False)
class Request:
    """One request, fully read."""

    method: str
    path: str
    """The target as sent, with its query."""

    raw_headers: list[tuple[str, str]]
    """In the order and case sent."""

    raw_head: bytes
    """The request line and headers as sent, with the blank line that ends them."""

    body: bytes
    """Without transfer coding."""

    keep_alive: bool

    @property
    def headers(self) -> dict[str, str]:
        """By lower-case name; the last one of several."""
        return {name.lower(): value for name, value in self.raw_headers}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RequestParser:
    """Bytes in, requests out; keeps what belongs to the next one."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.expects_continue = False
        """The request now being read waits for `100 Continue`; whoever answers it clears this."""
        self._parsing = self._parse()

    def feed(self, data: bytes) -> list[Request]:
        """Take what arrived; return the requests that are now complete."""
        self._buffer += data
        requests = []
        while (request := next(self._parsing)) is not None:
            requests.append(request)
        return requests

    def _parse(self) -> Generator[Request | None, None, None]:
        while True:
            raw_head = yield from self._until(b"\r\n\r\n")
            lines = raw_head[:-4].split(b"\r\n")
            method, path, keep_alive = request_line(lines[0])
            pairs = [header_pair(line) for line in lines[1:]]
            headers = one_of_each(pairs)
            if "host" not in headers:
                raise MalformedRequest("no Host")
            self.expects_continue = headers.get("expect", "").lower() == "100-continue"
            body = yield from self._body(headers)
            self.expects_continue = False
            keep_alive = keep_alive and headers.get("connection", "").lower() != "close"
            yield Request(method, path, pairs, raw_head, body, keep_alive)

    def _body(self, headers: Mapping[str, str]) -> Generator[None, None, bytes]:
        if "transfer-encoding" in headers:
            if headers["transfer-encoding"].lower() != "chunked" or "content-length" in headers:
                raise MalformedRequest("a body whose length could be read in two ways")
            return (yield from self._chunks())
        length = headers.get("content-length", "0")
        if not re.fullmatch("[0-9]+", length):
            raise MalformedRequest(f"Content-Length: {length}")
        return (yield from self._take(int(length)))

    def _chunks(self) -> Generator[None, None, bytes]:
        body = bytearray()
        while True:
            line = (yield from self._until(b"\r\n"))[:-2]
            size = line.split(b";")[0]
            if not re.fullmatch(b"[0-9A-Fa-f]+", size):
                raise MalformedRequest(f"chunk size {line!r}")
            if int(size, 16) == 0:
                break
            body += yield from self._take(int(size, 16))
            if (yield from self._take(2)) != b"\r\n":
                raise MalformedRequest("a chunk longer than its size")
        while (yield from self._until(b"\r\n")) != b"\r\n":
            pass  # trailers
        return bytes(body)

    def _until(self, mark: bytes) -> Generator[None, None, bytes]:
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise MalformedRequest("a head without an end")
            yield
        return (yield from self._take(end + len(mark)))

    def _take(self, count: int) -> Generator[None, None, bytes]:
        while len(self._buffer) < count:
            yield
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def request_line(line: bytes) -> tuple[str, str, bool]:
    """Return method, target, and whether the version keeps connections open."""
    match = REQUEST_LINE.fullmatch(line)
    if match is None:
        raise MalformedRequest(f"request line {line[:100]!r}")
    return match[1].decode(), match[2].decode("latin-1"), match[3] == b"1"


def header_pair(line: bytes) -> tuple[str, str]:
    match = HEADER_LINE.fullmatch(line)
    if match is None:
        raise MalformedRequest(f"header line {line[:100]!r}")
    return match[1].decode(), match[2].decode("latin-1")


def one_of_each(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Headers by lower-case name; those that frame the message may come only once."""
    names = [name.lower() for name, _ in pairs]
    for name in ("host", "content-length", "transfer-encoding"):
        if names.count(name) > 1:
            raise MalformedRequest(f"{name} more than once")
    return {name.lower(): value for name, value in pairs}


def head_bytes(first_line: str, defaults: Mapping[str, str], given: Mapping[str, str]) -> bytes:
    """Render a head; a given header replaces the default of that name in any case."""
    replaced = {name.lower() for name in given}
    kept = {name: value for name, value in defaults.items() if name not in replaced}
    lines = [first_line, *(f"{name}: {value}" for name, value in {**kept, **given}.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def status_line(status: int) -> str:
    reason = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"
    return f"HTTP/1.1 {status} {reason}"


def body_bytes(payload: object) -> bytes:
    """Bytes stay as they are; anything else becomes JSON."""
    return payload if isinstance(payload, bytes) else json.dumps(payload).encode()


def answer_bytes(payload: object, status: int, headers: Mapping[str, str]) -> bytes:
    """Render a whole answer with its Content-Length."""
    body = body_bytes(payload)
    defaults = {"content-type": "application/json", "content-length": str(len(body))}
    return head_bytes(status_line(status), defaults, headers) + body


@dataclass(frozen=True)
class NodeState:
    """What probes ask about."""

    kind: Kind
    health: Health
    models: Sequence[str]
    loaded: Sequence[str]
    slots: int
    context: int
    kv_free_tokens: int | None = None


def probe_answer(path: str, state: NodeState) -> tuple[int, object]:
    """Return status and payload of a probe; `hang` is the caller's to honour."""
    if state.health == "loading":
        error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        return 503, {"error": error}
    if state.health == "error":
        return 500, {"error": {"code": 500, "message": "it broke", "type": "server_error"}}
    answers = PROBES[state.kind](state)
    found = answers.get(path.partition("?")[0])
    if found is None:
        return 404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}
    return 200, found


def model_list(state: NodeState) -> dict[str, object]:
    owner = "llamacpp" if state.kind == "llama.cpp" else "fake"  # by which it is detected
    data = [{"id": name, "object": "model", "owned_by": owner} for name in state.models]
    return {"object": "list", "data": data}


def openai_probes(state: NodeState) -> dict[str, object]:
    return {"/v1/models": model_list(state)}


def llama_cpp_probes(state: NodeState) -> dict[str, object]:
    size = {"default_generation_settings": {"n_ctx": state.context}} if state.context else {}
    room = {} if state.kv_free_tokens is None else {"kv_free_tokens": state.kv_free_tokens}
    return {
        "/health": {"status": "ok", **room},
        "/props": {"total_slots": state.slots, **size},
        "/v1/models": model_list(state),
    }


def ollama_probes(state: NodeState) -> dict[str, object]:
    size = {"context_length": state.context} if state.context else {}
    return {
        "/api/tags": {"models": [{"name": name, "model": name} for name in state.models]},
        "/api/ps": {"models": [{"name": name, "model": name, **size} for name in state.loaded]},
        "/api/version": {"version": "0.9.0"},
    }


PROBES = {"llama.cpp": llama_cpp_probes, "openai": openai_probes, "ollama": ollama_probes}


class Receiver(Protocol):
    """Who takes what connections bring: the fake node."""

    def admit(self, connection: "Connection") -> int: ...

    def receive(self, request: Request, connection: "Connection") -> None: ...

    def refuse(self, error: MalformedRequest) -> None: ...

    def forget(self, connection: "Connection") -> None: ...


def linger_zero(transport: asyncio.BaseTransport) -> None:
    """Make the next close of this socket an RST instead of a FIN."""
    plain = transport.get_extra_info("socket")
    if plain is not None and plain.fileno() >= 0:
        with contextlib.suppress(OSError):  # the peer was first
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def peer_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Ask the system whether the peer has closed or reset this connection."""
    plain = transport.get_extra_info("socket")
    if plain is None or plain.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(plain.fileno(), getattr(select, "POLLRDHUP", 0))  # where it is: a FIN, too
    return bool(poll.poll(0))


class Connection(asyncio.Protocol):
    """One accepted connection; feeds the node and carries the answers."""

    transport: asyncio.Transport

    def __init__(self, node: Receiver) -> None:
        self._node = node
        self._parser = RequestParser()
        self.number = 0
        """Counted from 1 as accepted."""
        self.ended_here = False
        """The test ended it, though the last bytes may still be on their way."""
        self.hung_up = False
        """The peer ended it, not the test."""
        self.gone = asyncio.Event()
        """Ended, by whomever."""
        self.writable = asyncio.Event()
        self.writable.set()
        self.blocked = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a server's is a full one
        self.number = self._node.admit(self)

    def data_received(self, data: bytes) -> None:
        try:
            requests = self._parser.feed(data)
        except MalformedRequest as error:
            self._node.refuse(error)
            self.write(answer_bytes({"error": str(error)}, 400, {"connection": "close"}))
            self.close()
            return
        for request in requests:
            if not self.ended_here:  # by the answer to an earlier one
                self._node.receive(request, self)
        if self._parser.expects_continue:
            self._parser.expects_continue = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    @property
    def peer_left(self) -> bool:
        """The peer has ended it, even if the loop has not told us yet."""
        if not self.hung_up and not self.ended_here and not self.gone.is_set():
            self.hung_up = peer_hung_up(self.transport)
        return self.hung_up

    def eof_received(self) -> None:
        self._lose()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose()
        self._node.forget(self)

    def pause_writing(self) -> None:
        self.writable.clear()
        self.blocked.set()

    def resume_writing(self) -> None:
        self.blocked.clear()
        self.writable.set()

    def write(self, data: bytes) -> None:
        if self.gone.is_set() or self.ended_here:
            raise ConnectionResetError("the connection is gone")
        self.transport.write(data)

    async def drain(self) -> None:
        await self.writable.wait()
        if self.gone.is_set():
            raise ConnectionResetError("the connection is gone")

    def close(self) -> None:
        self.ended_here = True
        self.transport.close()

    def abort(self, *, reset: bool) -> None:
        self.ended_here = True
        if reset:
            linger_zero(self.transport)
        self.transport.abort()

    def _lose(self) -> None:
        self.hung_up = self.hung_up or not self.ended_here
        self.gone.set()
        self.writable.set()  # wakes those who wait to write; they find it gone
