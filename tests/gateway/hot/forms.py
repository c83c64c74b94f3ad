"""Forms, written out byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.testing import Reply

    from ..conftest import Rig

BOUNDARY = "xyz"
TYPE = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


def part(head: str, body: bytes) -> bytes:
    return f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + body + b"\r\n"


def field(name: str, value: str | bytes) -> bytes:
    body = value.encode() if isinstance(value, str) else value
    return part(f'Content-Disposition: form-data; name="{name}"', body)


def file(body: bytes, filename: str = "in.jsonl", name: str = "file") -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"'
    return part(f"{head}\r\nContent-Type: application/jsonl", body)


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


async def send(rig: Rig, body: bytes, headers: dict[str, str] | None = None) -> Reply:
    return await rig.get("/v1/files", {**TYPE, **(headers or {})}, "POST", body=body)


async def upload(rig: Rig, content: bytes, headers: dict[str, str] | None = None) -> Any:
    """Store a file, and return how it is shown."""
    reply = await send(rig, form(field("purpose", "batch"), file(content)), headers)
    assert reply.status == 200, reply.body
    return reply.json
