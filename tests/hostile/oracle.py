"""The oracle: every client gets its own answer or a clear error, and says which.

An answer that holds another request's token, more answers than requests, bytes that are not HTTP,
a whole answer that is not whole, silence: each is a failure, kept with the play that saw it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from .tokens import foreign

if TYPE_CHECKING:
    from .answers import Answer

Ending: TypeAlias = Literal[
    "served",  # its own answer, whole
    "passed",  # the node's own words
    "error",  # a clear error of the gateway's, in the stream or instead of it
    "shown",  # a page that is not relayed
    "cut",  # begun, and broken off
    "none",  # the connection closed without an answer
    "left",  # the client went first
]
CLEAR: frozenset[Ending] = frozenset({"served", "passed", "error"})
IF_CUT: frozenset[Ending] = CLEAR | {"cut"}
REFUSED: frozenset[Ending] = frozenset({"error"})
GONE: frozenset[Ending] = IF_CUT | {"none"}
FAILURES_MAX = 5
"""Of one kind of play; one is enough, and a few may show what they have in common."""

CODE = re.compile(r"[a-z_]{3,40}")
SIZE = re.compile(rb'"size": *(\d+),')
EVENT = re.compile(
    rb'data: \{"token":"(n-[0-9a-f]{12})","choices":\[\],"number":(\d+),"of":(\d+)\}\n\n'
)


@dataclass(frozen=True)
class Ask:
    """One request, and how it may end."""

    token: str
    data: bytes
    may: frozenset[Ending] = CLEAR
    hot: bool = True
    """Relayed; else a page of the gateway itself."""
    script: str = ""
    """What its node is to do."""

    def __str__(self) -> str:
        return f"{self.token} ({self.script})" if self.script else f"{self.data[:160]!r}"


@dataclass
class Oracle:
    """Judges, counts, and remembers what went wrong."""

    seed: str = ""
    transparent: bool = False
    """Whatever a node answers is passed on, also where it is no answer of an inference engine."""
    endings: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    asked: int = 0
    _failed: Counter[str] = field(default_factory=Counter)
    scripts: dict[str, str] = field(default_factory=dict)
    """What the node of each request was to do."""

    def fail(self, play: str, what: str) -> None:
        kind = play.split(" ")[0]
        self._failed[kind] += 1
        if self._failed[kind] <= FAILURES_MAX:
            self.failures.append(f"{play}: {what}")

    def end(self, ending: Ending) -> None:
        self.endings[ending] += 1

    def judge(self, play: str, ask: Ask, answer: Answer | None) -> None:
        """Take what a client got for a request; None where it got nothing."""
        ending: Ending = "none"
        if answer is not None:
            strangers = foreign(answer.raw, ask.token)
            if strangers:
                whose = ", ".join(f"{token} ({self.scripts.get(token)})" for token in strangers)
                self.fail(play, f"{ask} got an answer that holds {whose}")
            try:
                ending = self._read(ask, answer)
            except (ValueError, AssertionError) as error:
                shown = answer.raw[:600]
                self.fail(play, f"{ask} got {answer.status}, {error}: {shown!r}")
                return
        self.end(ending)
        if ending not in ask.may:
            got = f"{answer.raw[:200]!r}" if answer is not None else "nothing"
            may = "/".join(sorted(ask.may))
            self.fail(play, f"{ask} may end {may}, and ended {ending}: {got}")

    def _read(self, ask: Ask, answer: Answer) -> Ending:
        """Say how it ended; raises where that cannot be said."""
        if not answer.whole:
            return "cut"
        if answer.status >= 400:
            return self._read_error(ask, answer)
        if not ask.hot:
            return "shown"
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return self._read_stream(ask, answer.body)
        if self.transparent and SIZE.search(answer.body) is None:
            return "passed"
        assert 200 <= answer.status < 300, "no status for a request"
        size = SIZE.search(answer.body)
        assert size is not None, "the body is not the node's"
        assert int(size[1]) == len(answer.body), "the body is not whole"
        assert ask.token.encode() in answer.body, "whose answer is it?"
        if "cut" in ask.may and not answer.body.endswith(b'yy","end":true}'):
            return "cut"  # its node wrote something else into the middle of it
        json.loads(answer.body)
        return "served"

    def _read_error(self, ask: Ask, answer: Answer) -> Ending:
        told = json.loads(answer.body)
        error = told["error"]
        code = error.get("code", "") if isinstance(error, dict) else told.get("code", "")
        assert CODE.fullmatch(code), "an error without a code"
        if code == "node_said":
            assert ask.token.encode() in answer.body, "whose error is it?"
            return "passed"
        self.codes[code] += 1
        assert code != "internal_error", "an internal error"
        return "error"

    def _read_stream(self, ask: Ask, body: bytes) -> Ending:
        events = EVENT.findall(body)
        assert all(token == ask.token.encode() for token, _, _ in events), "whose stream is it?"
        assert [int(number) for _, number, _ in events] == list(range(len(events))), "a gap"
        if b'data: {"error"' in body:
            assert not body.endswith(b"[DONE]\n\n"), "an error and a good end"
            self.codes["in_stream"] += 1
            return "error"
        assert body.endswith(b"data: [DONE]\n\n"), "a stream without an end"
        assert events, "a stream without events"
        assert len(events) == int(events[0][2]), "a stream that is not whole"
        return "served"
