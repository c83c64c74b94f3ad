"""What answers every route of a gateway with what would steer a terminal, or with nonsense."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

EVIL = "\x1b]0;owned\x07\x1b[2J\r\x08\x7f\x9b31m\u202e\nforged"
DEEP = "[" * 100_000
ODD: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, 1e308, EVIL, [], {}, [EVIL], {EVIL: EVIL})
"""Values of every type, none of which fits everywhere."""

NODE = {
    "name": "n",
    "url": "http://n",
    "kind": "ollama",
    "state": "online",
    "slots": 2,
    "in_flight": 1,
    "models": ["m", "n"],
    "last_error": "e",
}
JOB = {
    "id": 1,
    "type": "chat",
    "status": "failed",
    "stage": "s",
    "model": "m",
    "attempt": 2,
    "created_at": 1.0,
    "started_at": 2.0,
    "finished_at": 3.0,
    "error": "e",
    "error_code": "c",
    "priority": "low",
    "job_id": 7,
    "idempotency_key": "k",
    "params": {"p": ["q"]},
    "result": {"r": "s"},
    "traceback": "t",
    "is_new": True,
}
BATCH = {
    "id": "batch-1",
    "input_file_id": "file-1",
    "status": "failed",
    "request_counts": {"total": 2, "completed": 1, "failed": 1},
    "errors": {"data": [{"code": "c", "message": "m", "line": 1}]},
    "output_file_id": None,
    "error_file_id": None,
    "in_progress_at": 1,
    "failed_at": 2,
}
QUEUE = {
    "waiting": 1,
    "max_size": 9,
    "processing": 1,
    "by_priority": {"high": 1},
    "average_wait_seconds": 1.5,
    "average_service_seconds": 1.5,
    "served_total": 1,
    "rejected_total": 1,
    "timeouts_total": 1,
}
REQUEST = {
    "id": "r-1",
    "state": "waiting",
    "model": "m",
    "user": "u",
    "priority": "normal",
    "position": 1,
    "estimated_wait_seconds": {"p50": 1.0, "p90": 2.0},
    "waited_seconds": 1.0,
    "node": "n",
    "reason": "r",
    "reason_code": "busy",
    "timeline": [{"seconds_ago": 1.0, "event": "arrived"}],
}
SNAPSHOT = {
    "queue": QUEUE,
    "nodes": [NODE],
    "models": [{"model": "m", "waiting": 1}],
    "jobs": {"types": [{"type": "t", "queued": 1}]},
    "problems": [{"code": "c", "last_minute": 1, "total": 1}],
}
SESSION = {
    "sessionId": "s-1",
    "session_id": "s-1",
    "id": "s-1",
    "model": "m",
    "messages": [{"role": "assistant", "content": "c"}],
    "text": "t",
    "promptId": "p-1",
    "prompt_id": "p-1",
    "status": "idle",
}
METRICS = '# TYPE forebay_jobs gauge\nforebay_jobs{type="\x1b[2J\x9b",status="queued"} 1\n'


def poisoned(value: Any, *, keep: tuple[str, ...] = ("id", "status")) -> Any:
    """Return the value with the evil in every string, but those by which a command goes on."""
    if isinstance(value, dict):
        return {
            name: inner if name in keep and value is not NODE else poisoned(inner, keep=keep)
            for name, inner in value.items()
        } | ({f"x{EVIL}": EVIL} if value is not QUEUE["by_priority"] else {f"h{EVIL}": 2})
    if isinstance(value, list):
        return [poisoned(inner, keep=keep) for inner in value]
    return value + EVIL if isinstance(value, str) else value


def told(path: str) -> Any:
    """Return what a gateway says there."""
    route = path.partition("?")[0]
    listed: dict[str, dict[str, Any]] = {
        "/v1/models": {"id": "m"},
        "/jobs": JOB,
        "/v1/batches": BATCH,
        "/v1/queue/requests": REQUEST,
    }
    if route.startswith("/admin/nodes"):
        return {"data": [NODE]} | NODE
    if route in listed:
        return {"data": [listed[route]]} | listed[route]
    for start, value in (
        ("/jobs/", JOB),
        ("/v1/batches/", BATCH),
        ("/v1/queue/", REQUEST),
        ("/v1/queue", QUEUE),
    ):
        if route.startswith(start):
            return value
    return SESSION


class _Quiet(ThreadingHTTPServer):
    """Says nothing of a command that hangs up on it: that would be taken for the command's own."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class HostileGateway:
    """Listens in a thread of its own; `answer` makes a status and a value out of a path."""

    def __init__(self) -> None:
        self.answer: Callable[[str], tuple[int, Any]] = lambda path: (200, told(path))
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                status, value = server.answer(self.path)
                kind, body = server.written(self.path, value, status)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_DELETE = do_GET  # noqa: N815 - their names are those of the base

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def written(self, path: str, value: Any, status: int) -> tuple[str, bytes]:
        """Return the kind and the bytes of an answer."""
        text = value if isinstance(value, str) else json.dumps(value)
        if status == 200 and path == "/metrics":
            return "text/plain", METRICS.encode()
        if status == 200 and path.startswith("/events"):
            hello = json.dumps({"gateway": EVIL, "version": 1})
            return "text/event-stream", (
                f"event: hello\ndata: {hello}\n\nevent: snapshot\ndata: {text}\n\n".encode()
            )
        if status == 200 and path.endswith("/events"):
            return "text/event-stream", f"id: 1\nevent: x\ndata: {text}\n\n".encode()
        return "application/json", text.encode()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
