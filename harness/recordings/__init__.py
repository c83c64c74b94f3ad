"""What stock clients send: whole requests, byte for byte, for benchmarks and tests.

`requests/NAME.http` holds a head and a body as they came, but for three things. The port is taken
out of `Host`. A long run of base64 is kept as `<base64:LENGTH>` and made anew here, the same each
time. Keys and users are invented.
"""

import json
import random
import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "requests"
CLIENTS = FOLDER / "clients.json"
"""Name of each recording → client and version, in the order in which they are shown."""
KEY = "sk-recorded"
MODEL = "bench-model"
USER = "user-0042"
_MARK = re.compile(rb"<base64:(\d+)>")


@dataclass(frozen=True)
class Recording:
    """One request of one client."""

    name: str
    client: str
    head: bytes
    """Up to and with the empty line."""
    body: bytes

    @property
    def request(self) -> bytes:
        return self.head + self.body

    @property
    def route(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def is_stream(self) -> bool:
        return json.loads(self.body).get("stream") is True


@cache
def base64_text(length: int) -> bytes:
    """Return that many characters of base64, the same ones each time.

    >>> base64_text(8) == base64_text(12)[:8], len(base64_text(10))
    (True, 10)
    """
    return b64encode(random.Random(18).randbytes(length))[:length]


def expanded(kept: bytes) -> bytes:
    """Return a request as it was sent, given as it is kept."""
    return _MARK.sub(lambda mark: base64_text(int(mark[1])), kept)


@cache
def recordings() -> list[Recording]:
    """Return all of them, in the order in which they are shown."""
    clients: dict[str, str] = json.loads(CLIENTS.read_text())
    return [_recording(name, client) for name, client in clients.items()]


def recording(name: str) -> Recording:
    """Return one of them."""
    return next(one for one in recordings() if one.name == name)


def _recording(name: str, client: str) -> Recording:
    head, end, body = (FOLDER / f"{name}.http").read_bytes().partition(b"\r\n\r\n")
    return Recording(name, client, head + end, expanded(body))
