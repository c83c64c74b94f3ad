"""Exit statuses, the same for every command."""

from __future__ import annotations

DONE = 0
FAILED = 1
USAGE = 2
NOT_REACHABLE = 3
NOT_ALLOWED = 4
BROKEN_LIMIT = 5
INTERRUPTED = 130
"""Ctrl-C, as shells have it: 128 and the signal's number."""
PIPE_CLOSED = 141
"""The same for a pipe whose reader has left, as `head` does."""

MEANINGS = {
    DONE: "success",
    FAILED: "the gateway refused, or the operation failed",
    USAGE: "usage error: a command, an option, a file, a setting",
    NOT_REACHABLE: "no gateway can be reached",
    NOT_ALLOWED: "the gateway needs a key, or refused the one sent",
    BROKEN_LIMIT: "a `--fail-if` condition of `forebay bench` or `forebay sim` holds",
    INTERRUPTED: "Ctrl-C",
    PIPE_CLOSED: "the reader of the output closed the pipe, as `head` does",
}
EPILOG = (
    "Exit status: 0 done, 1 failed, 2 usage error, 3 no gateway, 4 key needed, 5 a --fail-if "
    "holds, 130 Ctrl-C, 141 pipe closed."
)
