"""Short words for what tests of sessions do over and over, over both wires."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from forebay.sessions.session import Session
    from forebay.sessions.sessions import Sessions
    from forebay.testing import Call, FakeNode, RawClient

    from ..conftest import Rig

TERMINAL = ("turn_complete", "turn_error")
Headers = dict[str, str] | None


class Said(Struct):
    """What came back, whichever wire it came over."""

    ok: bool
    body: dict[str, Any]
    """The result, or what is said about the error."""
    code: str = ""
    """The error's code."""
    number: int = 0
    """The HTTP status, or the number of the JSON-RPC error."""
    headers: dict[str, str] = {}


class Wire(Protocol):
    """One of the two ways to ask."""

    async def new(self, headers: Headers = None, **fields: Any) -> Said: ...

    async def prompt(self, session_id: str, headers: Headers = None, **fields: Any) -> Said: ...

    async def cancel(self, session_id: str, headers: Headers = None, **fields: Any) -> Said: ...

    async def branch(self, session_id: str, headers: Headers = None) -> Said: ...


class Http:
    """`/session/...`"""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    async def ask(
        self, method: str, path: str, headers: Headers = None, fields: object = None
    ) -> Said:
        raw = b"" if fields is None else json.dumps(fields).encode()
        given = {"content-type": "application/json", **(headers or {})}
        reply = await self.rig.get(path, given, method, body=raw)
        body = reply.json
        if reply.status < 400:
            return Said(True, body, "", reply.status, reply.headers)
        error = body if "code" in body else body["error"]
        return Said(False, error, error["code"], reply.status, reply.headers)

    async def new(self, headers: Headers = None, **fields: Any) -> Said:
        return await self.ask("POST", "/session", headers, fields)

    async def prompt(self, session_id: str, headers: Headers = None, **fields: Any) -> Said:
        return await self.ask("POST", f"/session/{session_id}/prompt", headers, fields)

    async def cancel(self, session_id: str, headers: Headers = None, **fields: Any) -> Said:
        path = f"/session/{session_id}/cancel"
        return await self.ask("POST", path, headers, fields or None)

    async def branch(self, session_id: str, headers: Headers = None) -> Said:
        return await self.ask("POST", f"/session/{session_id}/branch", headers)


class Rpc:
    """`/acp`."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    async def call(self, method: str, params: dict[str, Any], headers: Headers = None) -> Said:
        raw = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).encode()
        reply = await self.rig.get("/acp", headers, "POST", body=raw)
        body = reply.json
        if "id" not in body:  # refused before any call was looked at
            return Said(False, body["error"], body["error"]["code"], reply.status)
        assert (reply.status, body["jsonrpc"], body["id"]) == (200, "2.0", 7)
        if "result" in body:
            return Said(True, body["result"])
        error = body["error"]
        data = error.get("data", {})
        return Said(False, data, data.get("errorKind", ""), error["code"])

    async def new(self, headers: Headers = None, **fields: Any) -> Said:
        return await self.call("session/new", fields, headers)

    async def prompt(self, session_id: str, headers: Headers = None, **fields: Any) -> Said:
        return await self.call("session/prompt", {"sessionId": session_id, **fields}, headers)

    async def cancel(self, session_id: str, headers: Headers = None, **fields: Any) -> Said:
        return await self.call("session/cancel", {"sessionId": session_id, **fields}, headers)

    async def branch(self, session_id: str, headers: Headers = None) -> Said:
        return await self.call("session/branch", {"sessionId": session_id}, headers)


class Follower:
    """Reads the events of a session."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._rest = b""
        self.seen: list[dict[str, Any]] = []
        """Everything so far; `id` is 0 where an event has none."""
        self.raw = b""

    async def next(self) -> dict[str, Any] | None:
        """Return the next event, None at the end."""
        while b"\n\n" not in self._rest:
            piece = await self._client.chunk()
            if piece is None:
                return None
            self._rest += piece
            self.raw += piece
        frame, _, self._rest = self._rest.partition(b"\n\n")
        fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
        if b"data" not in fields:
            return await self.next()
        event: dict[str, Any] = json.loads(fields[b"data"])
        assert event["type"] == fields[b"event"].decode()
        assert "promptId" in event
        event["id"] = int(fields.get(b"id", b"0"))
        self.seen.append(event)
        return event

    async def until(self, kind: str, prompt_id: str | None = None) -> dict[str, Any]:
        """Read on until an event of this kind, perhaps of one prompt."""
        while (event := await self.next()) is not None:
            if event["type"] == kind and prompt_id in (None, event["promptId"]):
                return event
        raise AssertionError(f"no {kind} of {prompt_id}: {[e['type'] for e in self.seen]}")

    async def end_of(self, prompt_id: str) -> dict[str, Any]:
        """Read on until a prompt has its one end."""
        for event in self.seen:
            if event["type"] in TERMINAL and event["promptId"] == prompt_id:
                return event
        while (event_ := await self.next()) is not None:
            if event_["type"] in TERMINAL and event_["promptId"] == prompt_id:
                return event_
        raise AssertionError(f"no end of {prompt_id}: {[e['type'] for e in self.seen]}")

    async def to_the_end(self) -> list[dict[str, Any]]:
        """Read on until the stream ends; return all that was seen."""
        while await self.next() is not None:
            pass
        return self.seen

    def kinds(self, prompt_id: str) -> list[str]:
        return [event["type"] for event in self.seen if event["promptId"] == prompt_id]


async def follow(rig: Rig, session_id: str, headers: Headers = None, query: str = "") -> Follower:
    client = await rig.client()
    await client.get(f"/session/{session_id}/events{query}", headers)
    head = await client.head()
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return Follower(client)


async def started(rig: Rig, **settings: Any) -> FakeNode:
    """Start a gateway in front of one node, of one slot unless the settings say else."""
    node = await rig.node(context=settings.pop("context", 0), slots=settings.pop("slots", 1))
    await rig.start(node, **settings)
    return node


async def post(rig: Rig, path: str, body: object, headers: Headers = None) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await rig.get(path, headers, "POST", body=raw)


async def new_session(rig: Rig, headers: Headers = None, **fields: Any) -> str:
    said = await Http(rig).new(headers, **{"model": "m", **fields})
    assert said.number == 201, said.body
    session_id: str = said.body["sessionId"]
    return session_id


async def prompt(rig: Rig, session_id: str, text: str = "hi", **fields: Any) -> str:
    said = await Http(rig).prompt(session_id, prompt=text, **fields)
    assert said.number == 202, said.body
    prompt_id: str = said.body["promptId"]
    return prompt_id


async def look(rig: Rig, path: str, headers: Headers = None) -> dict[str, Any]:
    reply = await rig.get(path, headers)
    assert reply.status == 200, reply.json
    body: dict[str, Any] = reply.json
    return body


async def turn(rig: Rig, session_id: str, prompt_id: str) -> dict[str, Any]:
    return await look(rig, f"/session/{session_id}/turns/{prompt_id}")


async def until_turn(rig: Rig, session_id: str, prompt_id: str, *states: str) -> dict[str, Any]:
    """Ask until a prompt is in one of these states."""
    for _ in range(2000):
        seen = await turn(rig, session_id, prompt_id)
        if seen["status"] in states:
            return seen
    raise AssertionError(f"{prompt_id} is {seen['status']}, not {states}")


def delta(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


async def answer(call: Call, *texts: str) -> None:
    """Answer as engines do: a stream of deltas, a reason, the cost, `[DONE]`."""
    await call.start_stream()
    for text in texts or ("yes",):
        await call.chunk(delta(text))
    await finish(call)


async def say(call: Call, text: str, prompt_tokens: int) -> None:
    """Answer, and say how many tokens the prompt had."""
    await call.start_stream()
    await call.chunk(delta(text))
    await finish(call, prompt_tokens, len(text) // 4)


async def finish(call: Call, prompt_tokens: int = 5, tokens: int = 2) -> None:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}
    stop = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    for chunk in (stop, {"choices": [], "usage": usage}):
        await call.chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()


async def answers_itself(node: FakeNode) -> None:
    """Have a node answer every call at once."""
    node.automatic = answer


def all_sessions(rig: Rig) -> Sessions:
    sessions = rig.gateway.parts.sessions._opening.value
    assert sessions is not None
    return sessions


def held(rig: Rig, session: str) -> Session:
    return all_sessions(rig)._sessions[session]
