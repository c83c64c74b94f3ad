"""`forebay logs`: the access log of a gateway in a form for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.exits import USAGE
from forebay.cli.gateway import AsJson, wait_s
from forebay.cli.output.console import fail, tell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

LOOK_S = 0.5
"""How often a file that is followed is looked at."""
LINE_BYTES_MAX = 1 << 20


def logs(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Access log to show, or - for standard input."),
    ],
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the file as it grows.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show an access log in readable form; lines that are no requests are shown as they are."""
    line_form = LineForm(as_json)
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
