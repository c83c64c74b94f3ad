"""`forebay logs`: the access log of a gateway, or of a file, in a form for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.exits import USAGE
from forebay.cli.gateway import (
    AsJson,
    GatewayClient,
    GatewayUrl,
    KeyEnv,
    OutageRetry,
    wait_s,
    where_and_key,
)
from forebay.cli.output.console import counted, fail, say, tell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from forebay.sdk.transport import Transport

PATH = "/admin/logs"
SILENCE_S = 60.0
"""The gateway sends something every 15 s."""
LOOK_S = 0.5
"""How often a file that is followed is looked at."""
LINE_BYTES_MAX = 1 << 20


def logs(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Access log to show, or - for standard input; without it, follow the log of "
            "the running gateway.",
        ),
    ] = "",
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the file as it grows.")
    ] = False,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Show the access log in readable form.

    Without a file it shows each request of a running gateway as it ends, until Ctrl-C; that is for
    whoever may use /admin. Lines that are no requests are shown as they are.
    """
    line_form = LineForm(as_json)
    if not file:
        _follow_gateway(GatewayClient(url, key_env), line_form)
        return
    if url or key_env:
        where_and_key(url, key_env)  # only to say what is wrong with them
    if file == "-":
        for line in _lines(sys.stdin.buffer):
            line_form.show(line)
        return
    try:
        with Path(file).open("rb") as opened:
            for line in _lines_added(opened, Path(file)) if follow else _lines(opened):
                line_form.show(line)
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror or error}. Name another file.", code=USAGE)


class LineForm:
    """How lines are shown."""

    def __init__(self, as_json: bool) -> None:
        from msgspec import DecodeError
        from msgspec.json import Decoder

        from forebay.gateway.hot.access_record import AccessRecord, short_lines

        self._as_json = as_json
        self._decode = Decoder(AccessRecord).decode
        self._wrong = (DecodeError, ValueError)
        self._short = short_lines

    def show(self, line: bytes) -> None:
        """Print one line; with --json only those of requests, as they are."""
        at = max(0, line.find(b"{"))  # journald and others put something before it
        try:
            record = self._decode(line[at:])
            short = self._short([record]).decode()
        except self._wrong:
            if not self._as_json:
                tell(line.decode(errors="replace"))
            return
        tell(line[at:].decode(errors="replace") if self._as_json else short.rstrip("\n"))


def _lines(opened: IO[bytes]) -> Iterator[bytes]:
    while line := opened.readline(LINE_BYTES_MAX):
        yield line.rstrip(b"\r\n")


def _lines_added(opened: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield all lines there are, and for ever those that come; from the start where it is cut."""
    half = b""
    while True:
        while line := opened.readline(LINE_BYTES_MAX):
            half += line
            if half.endswith(b"\n") or len(half) >= LINE_BYTES_MAX:
                yield half.rstrip(b"\r\n")
                half = b""
        wait_s(LOOK_S)
        if path.stat().st_size < opened.tell():
            opened.seek(0)


# -- a gateway


def _follow_gateway(client: GatewayClient, line_form: LineForm) -> None:
    """Show requests as they end; comes back by itself after a restart of the gateway."""
    from forebay.clock import SystemClock
    from forebay.sdk import GatewayAway

    reader = LogReader(line_form)
    retry = OutageRetry(SystemClock(), say)
    with client.or_exit():
        while True:
            try:
                client.run(reader.follow)
            except GatewayAway:
                if not reader.was_heard:
                    raise
            wait_s(LOOK_S)
            retry.until_answered(lambda: client.ask("GET", "/health", object))


class LogReader:
    """Reads the events of one gateway."""

    def __init__(self, line_form: LineForm) -> None:
        self._form = line_form
        self.was_heard = False
        self._silent: list[str] = []

    async def follow(self, transport: Transport) -> None:
        """Show what comes until the gateway ends it; raises SdkError."""
        from forebay.sdk.transport import ApiCall, decoded
        from forebay.sse import SseEvent

        call = ApiCall("GET", PATH, headers={"accept": "text/event-stream"}, read_s=SILENCE_S)
        async with transport.opened(call) as response:
            async for event in transport.events(response, LINE_BYTES_MAX):
                if not isinstance(event, SseEvent):
                    continue
                if event.event == "request":
                    self._form.show(event.data.encode())
                    sys.stdout.flush()
                elif event.event == "lost":
                    lines = counted(decoded(event.data, dict[str, int]).get("lines", 0), "line")
                    say(f"{lines} lost: they arrived faster than they were read")
                elif event.event in ("hello", "incomplete"):
                    self.was_heard = True
                    told = decoded(event.data, dict[str, int | list[str]]).get("incomplete")
                    self._note_silent(told if isinstance(told, list) else [])

    def _note_silent(self, silent: list[str]) -> None:
        """Say whose requests are missing, when that has changed."""
        if silent != self._silent:
            self._silent = silent
            say(
                f"Requests of {', '.join(silent)} are missing: no answer"
                if silent
                else "All processes answer again"
            )
