"""`python -m bench.recordings.record`: let the stock clients make their calls; keep what they send.

Each client is a process of its own and talks to a raw server on loopback, which keeps what it
reads and answers so that the client is content. Clients that are not in the development
environment are taken from another one: `--langchain PYTHON`.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

from bench.recordings import CLIENTS, FOLDER, KEY, MODEL, USER, prompts, recordings, shortened
from bench.recordings.answers import ANSWERS
from bench.recordings.clients import CALLS

ROOT = Path(__file__).parent.parent.parent
NODE_CALLS = ("openai-node-chat-user", "openai-node-stream")
LIMIT_S = 60.0
TOKENS = 3


class Listener:
    """Takes one request, keeps its bytes, and answers it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("localhost", 0), backlog=8)
        self._listener.settimeout(LIMIT_S)
        self.port: int = self._listener.getsockname()[1]
        self.request = b""

    def answer_one(self) -> None:
        connection = self._listener.accept()[0]
        with connection, self._listener:
            connection.settimeout(LIMIT_S)
            head, body = _read_request(connection)
            self.request = head.replace(f"localhost:{self.port}".encode(), b"localhost") + body
            answer = ANSWERS[head.split(b" ", 2)[1].decode()]
            text, content_type = answer.whole, "application/json"
            if json.loads(body).get("stream"):
                text = answer.first + answer.token * TOKENS + answer.last
                content_type = answer.stream_type
            begin = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n"
            length = f"Content-Length: {len(text.encode())}\r\nConnection: close\r\n\r\n"
            connection.sendall((begin + length + text).encode())


def _read_request(connection: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(connection)
    head, end, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    if length is None:
        raise ValueError(f"a body without a length: {head!r}")
    while len(body) < int(length[1]):
        body += _received(connection)
    return head + end, body


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(2**20)
    if not data:
        raise ConnectionError("the client left before its request was whole")
    return data


def recorded(command: list[str], words: str = "") -> bytes:
    """Run a client, which is given the port as its last argument; return what it sent."""
    listener = Listener()
    server = threading.Thread(target=listener.answer_one)
    server.start()
    subprocess.run(
        [*command, str(listener.port)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},  # nobody's own keys and organisations
        input=words,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    server.join()
    return listener.request


def version(python: str, package: str) -> str:
    """Return name and version of a package, as that interpreter has it."""
    code = f"import importlib.metadata as m; print({package!r}, m.version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _node_version() -> str:
    package = ROOT / "tests" / "real" / "node" / "node_modules" / "openai" / "package.json"
    return f"openai (Node) {json.loads(package.read_text())['version']}"


def keep(name: str, sent: bytes) -> None:
    (FOLDER / f"{name}.http").write_bytes(shortened(sent, prompts.PICTURE_LENGTH))


def table() -> str:
    """Return the table of the recordings, for the page beside them."""
    lines = ["| name | client | route | head, bytes | body, bytes |", "|---|---|---|---:|---:|"]
    lines += [
        f"| {one.name} | {one.client} | {one.route} | {len(one.head):,} | {len(one.body):,} |"
        for one in recordings()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recordings.record", description=__doc__)
    parser.add_argument("--langchain", default=sys.executable, help="a Python that has it")
    options = parser.parse_args()
    clients: dict[str, str] = {}
    for name in CALLS:
        package = "langchain-openai" if name.startswith("langchain") else name.partition("-")[0]
        python = options.langchain if name.startswith("langchain") else sys.executable
        keep(name, recorded([python, "-m", "bench.recordings.clients", name]))
        clients[name] = version(python, package)
    given = {"key": KEY, "model": MODEL, "user": USER, "messages": prompts.CHAT}
    for name in NODE_CALLS:
        script = str(ROOT / "bench" / "recordings" / "clients.mjs")
        keep(name, recorded(["node", script, name], json.dumps(given)))
        clients[name] = _node_version()
    CLIENTS.write_text(json.dumps(clients, indent=1) + "\n")
    print(table())


if __name__ == "__main__":
    main()
