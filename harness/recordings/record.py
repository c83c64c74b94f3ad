"""`python -m harness.recordings.record NAME ...`: record these requests anew with today's clients.

Each client is a process of its own that makes the call whose body was recorded before, to a raw
server on loopback, which keeps what it reads and answers so that the client is content. A client
that is not in the development environment is run by another: `--python PYTHON`.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.recordings import CLIENTS, FOLDER, KEY, base64_text, recording, recordings
from harness.recordings.answers import ANSWERS

ROOT = Path(__file__).parent.parent.parent
LIMIT_S = 60.0
TOKENS = 3
PACKAGES = {"langchain": "langchain_openai"}


def call(name: str, port: int) -> None:
    """Make one call with the client that the recording is named after."""
    client, _, what = name.partition("-")
    body: dict[str, Any] = json.loads(recording(name).body)
    package = import_module(PACKAGES.get(client, client))
    address = f"http://localhost:{port}"
    match client:
        case "anthropic":
            messages = package.Anthropic(base_url=address, api_key=KEY).messages
            if body.pop("stream", False):
                with messages.stream(**body) as stream:
                    stream.until_done()
            else:
                messages.create(**body)
        case "ollama":
            headers = {"Authorization": f"Bearer {KEY}"}
            answer = package.Client(host=address, headers=headers).chat(**body)
            list(answer if body["stream"] else ())
        case "langchain":
            options = {"model": body["model"], "temperature": body["temperature"]}
            limit = body.get("max_completion_tokens")
            chat = package.ChatOpenAI(base_url=f"{address}/v1", api_key=KEY, **options,
                                      **({"max_tokens": limit} if limit else {}))  # fmt: skip
            list(chat.stream(body["messages"])) if body["stream"] else chat.invoke(body["messages"])
        case _ if what.startswith("async"):
            asyncio.run(_openai_async(package, f"{address}/v1", body))
        case _:
            openai = package.OpenAI(base_url=f"{address}/v1", api_key=KEY)
            if what == "embeddings":
                openai.embeddings.create(model=body["model"], input=body["input"])
            else:
                list(openai.chat.completions.create(**body))


async def _openai_async(package: Any, url: str, body: dict[str, Any]) -> None:
    answer = await package.AsyncOpenAI(base_url=url, api_key=KEY).chat.completions.create(**body)
    if body.get("stream"):
        async for _ in answer:
            pass


class Listener:
    """Takes one request, keeps its bytes, and answers it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("localhost", 0), backlog=8)
        self._listener.settimeout(LIMIT_S)
        self.port: int = self._listener.getsockname()[1]
        self.request = b""

    def answer_one(self) -> None:
        connection = self._listener.accept()[0]
        with connection, self._listener, connection.makefile("rb") as received:
            connection.settimeout(LIMIT_S)
            head = b"".join(iter(received.readline, b"\r\n")) + b"\r\n"
            length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
            body = received.read(int(length[1]) if length else 0)
            self.request = head.replace(b"localhost:%d" % self.port, b"localhost") + body
            answer = ANSWERS[head.split(b" ", 2)[1].decode()]
            text, content_type = answer.whole, "application/json"
            if json.loads(body).get("stream"):
                text = answer.first + answer.token * TOKENS + answer.last
                content_type = answer.stream_type
            begin = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n"
            size = f"Content-Length: {len(text.encode())}\r\nConnection: close\r\n\r\n"
            connection.sendall((begin + size + text).encode())


def recorded(name: str, python: str) -> tuple[bytes, str]:
    """Run the client of a recording; return what it sent, and the client with its version."""
    listener = Listener()
    server = threading.Thread(target=listener.answer_one)
    server.start()
    command = [python, "-m", "harness.recordings.record", "--call", str(listener.port), name]
    words = ""
    if name.startswith("openai-node"):
        command = ["node", str(Path(__file__).with_name("client.mjs")), str(listener.port), KEY]
        words = recording(name).body.decode()
    done = subprocess.run(
        command, cwd=ROOT, input=words, capture_output=True, text=True, check=True, timeout=LIMIT_S,
        env={"PATH": os.defpath},  # nobody's own keys and organisations
    )  # fmt: skip
    server.join()
    return listener.request, done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.recordings.record")
    parser.add_argument("names", nargs="+", choices=[one.name for one in recordings()])
    parser.add_argument("--python", default=sys.executable, help="the one that has the client")
    parser.add_argument("--call", type=int, metavar="PORT", help="be the client")
    options = parser.parse_args()
    if options.call:
        [name] = options.names
        call(name, options.call)
        package = PACKAGES.get(name.partition("-")[0], name.partition("-")[0]).replace("_", "-")
        print(package, version(package))  # noqa: T201 - the process that runs it reads this
        return
    clients: dict[str, str] = json.loads(CLIENTS.read_text())
    for name in options.names:
        path = FOLDER / f"{name}.http"
        mark = re.search(rb"<base64:(\d+)>", path.read_bytes())
        sent, clients[name] = recorded(name, options.python)
        if mark:
            sent = sent.replace(base64_text(int(mark[1])), mark[0])
        path.write_bytes(sent)
    CLIENTS.write_text(json.dumps(clients, indent=1) + "\n")


if __name__ == "__main__":
    main()
