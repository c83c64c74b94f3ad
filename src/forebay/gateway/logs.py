"""The formats of the gateway's own log: JSON lines, or short lines on a terminal."""

from __future__ import annotations

import logging
import select
import sys
from typing import IO

import msgspec

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the `extra` of the caller."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {k: v for k, v in record.__dict__.items() if k not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()


class ShortFormatter(logging.Formatter):
    """`12:34:56 node is online node=gpu1`."""

    def format(self, record: logging.LogRecord) -> str:
        more = " ".join(f"{k}={v}" for k, v in record.__dict__.items() if k not in _STANDARD)
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.getMessage()} {more}".rstrip()
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up_logging() -> None:
    """Log to stderr: JSON, or short lines where it is a terminal."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ShortFormatter() if sys.stderr.isatty() else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


class LineStream:
    """Writes whole lines, so that several processes can share a pipe and none is torn."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        """Write in pieces that the kernel keeps together."""
        start = 0
        while start < len(data):
            end = data.rfind(b"\n", start, start + select.PIPE_BUF) + 1 or len(data)
            self._stream.write(data[start:end])
            self._stream.flush()
            start = end

    def flush(self) -> None:
        """Everything has been written."""
