"""A stand-in for the gateway's `/v1/files` and `/v1/batches`, for tests of the command alone.

Not a gateway: it says what a test tells it to say, and goes away when told. What the real routes
answer is tested with the real gateway.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

FILE, BATCH = "file-1", "batch_1"


def progress(status: str = "in_progress", completed: int = 0, failed: int = 0) -> dict[str, Any]:
    """Return what a poll is told about a batch of three lines."""
    counts = {"total": 3, "completed": completed, "failed": failed}
    return {"status": status, "request_counts": counts}


class BatchServer:
    """Speaks the routes a batch needs; everything it was asked is kept."""

    def __init__(self) -> None:
        self.uploads: list[bytes] = []
        self.created: list[dict[str, Any]] = []
        self.cancels = 0
        self.polls = 0
        self.script: list[dict[str, Any]] = [progress("completed", 3)]
        """One for each poll; the last is said again and again."""
        self.files: dict[str, bytes] = {"out": b'{"custom_id": "1"}\n'}
        """What the batch has left, once it has ended: `out`, and `err` if lines failed."""
        self.on_poll: Callable[[int], None] = lambda _: None
        """Called with the number of each poll, before it is answered."""
        self.lost_answers: set[str] = set()
        """Paths whose next POST is done, but not answered."""
        self.cut_downloads = 0
        """How many of the next downloads end too early."""
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, at the same port as before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._server.daemon_threads = True
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def go_away(self) -> None:
        """Stop listening; what is being asked now gets no answer."""
        self._server.shutdown()
        self._server.server_close()

    def batch(self) -> dict[str, Any]:
        """Return the batch as it is now."""
        now = self.script[min(self.polls, len(self.script)) - 1] if self.polls else progress()
        ended = now["status"] in ("completed", "cancelled", "expired")
        return {
            "id": BATCH,
            "input_file_id": FILE,
            "errors": None,
            "output_file_id": "out" if ended and "out" in self.files else None,
            "error_file_id": "err" if ended and "err" in self.files else None,
            "in_progress_at": 1000,
            "completed_at": 1061,
            **now,
        }

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """Return what is answered, or None where nothing is."""
        match (method, path.partition("?")[0]):
            case ("POST", "/v1/files"):
                self.uploads.append(body)
                answer: Any = {"id": FILE}
            case ("POST", "/v1/batches"):
                self.created.append(json.loads(body))
                answer = self.batch()
            case ("GET", "/v1/batches"):
                answer = {"data": [self.batch() for _ in self.created]}
            case ("GET", "/v1/batches/batch_1") if self.created:
                self.polls += 1
                self.on_poll(self.polls)
                answer = self.batch()
            case ("POST", "/v1/batches/batch_1/cancel"):
                self.cancels += 1
                answer = self.batch()
            case ("GET", name) if name.startswith("/v1/files/"):
                answer = self.files[name.split("/")[3]]
            case _:
                answer = {"error": {"code": "not_found", "message": "there is no such thing"}}
        if path in self.lost_answers:
            self.lost_answers.remove(path)
            return None
        return answer


def _handler(told: BatchServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            server = told._server
            answer = told.answer(self.command, self.path, body)
            if answer is None or told._server is not server or server.socket.fileno() < 0:
                return  # it went away meanwhile
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(404 if b'"error": {"code"' in content else 200)
            cut = isinstance(answer, bytes) and told.cut_downloads > 0
            told.cut_downloads -= cut
            self.send_header("content-length", str(len(content) + cut))
            self.send_header("openai-poll-after-ms", "0")
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - the names that http.server calls

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
