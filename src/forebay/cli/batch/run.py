"""The files of a batch: what is sent, and what is fetched.

Of the file only the obvious is looked at here, before anything is sent: the gateway checks every
line. It is never held whole.
"""

from __future__ import annotations

import contextlib
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from forebay.sdk.transport import ApiCall, Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forebay.sdk import SdkError
    from forebay.sdk.transport import Transport

DOWNLOAD_LIMIT_S = 60.0
"""One wait for the network."""
LINE_BYTES_MAX = 32 * 1024 * 1024


# -- the file


class BadFile(Exception):
    """A file cannot be used; the text says what to do."""


def endpoint_of(file: Path, given: str | None) -> str:
    """Return what the lines of a file ask for, by its first; raises BadFile."""
    try:
        with file.open("rb") as opened:
            first = next((line for line in _lines(opened) if line.strip()), b"")
    except IsADirectoryError:
        raise BadFile(f"{file} is a folder; name a file of JSON lines.") from None
    except OSError as error:
        raise unreadable(file, error) from None
    if not first:
        raise BadFile(f"{file} is empty: it needs a line of JSON for each request.")
    asked = _url_of(first, file)
    if given is not None and asked != given:
        raise BadFile(f"--endpoint {given}: {file} asks for {asked} in its first line.")
    return asked


def _lines(opened: Any) -> Iterator[bytes]:
    while line := opened.readline(LINE_BYTES_MAX):
        yield line


def _url_of(line: bytes, file: Path) -> str:
    wanted = 'such as {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", '
    wanted += '"body": {"model": ..., "messages": [...]}}'
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise BadFile(f"the first line of {file} is not JSON. Write lines {wanted}.") from None
    for name in ("custom_id", "url"):
        if not isinstance(request, dict) or not isinstance(request.get(name), str):
            raise BadFile(f"the first line of {file} has no {name}. Write lines {wanted}.")
    return str(request["url"])


def unreadable(file: Path, error: OSError) -> BadFile:
    """Return the error for a file that the system does not let us read."""
    return BadFile(f"{file} cannot be read: {error.strerror}.")


# -- the answers


class BatchOutputs(NamedTuple):
    """Where the answers go."""

    output: Path
    errors: Path

    def check(self) -> None:
        """See that nothing is overwritten that another run, or another program, has left."""
        for path, option in ((self.output, "--out"), (self.errors, "--errors")):
            if path.exists():
                raise BadFile(f"{path} exists. Name another file with {option}, or move it away.")
            if not path.parent.is_dir():
                raise BadFile(f"{option} {path}: its folder does not exist. Create it first.")


async def download(
    transport: Transport,
    file_id: str,
    path: Path,
    on_outage: Callable[[SdkError | None], object],
) -> None:
    """Fetch a file that a batch has left, whole or not at all; raises SdkError and BadFile."""
    part = path.with_name(path.name + ".part")
    call = ApiCall("GET", f"/v1/files/{quote(file_id, safe='')}/content", read_s=DOWNLOAD_LIMIT_S)

    async def fill() -> None:
        async with transport.opened(call) as response, aclosing(transport.pieces(response)) as got:
            with part.open("wb") as file:
                async for piece in got:
                    file.write(piece)

    try:
        await Outage(transport, on_outage).until_answered(fill)
        part.replace(path)
    except OSError as error:
        raise BadFile(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
