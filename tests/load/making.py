"""Samples, plans and documents for the tests of the load."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from forebay.load.document import Document, document
from forebay.load.plan import LoadPlan
from forebay.load.run import Measured
from forebay.load.samples import NOT_SENT, UNFINISHED, RequestSample

URL = "http://127.0.0.1:1"
EVIL = "<script>alert(1)</script>\"'&<!--"
OF_RUN = ("messages", "span_s", "elapsed_s")


def plan(**more: Any) -> LoadPlan:
    return LoadPlan(**{"url": URL, "model": "m", "duration_s": 10.0, **more})


def ok(at_s: float, total_s: float, **more: Any) -> RequestSample:
    """A success, as a gateway answers it."""
    given: dict[str, Any] = {
        "user": "user-1",
        "priority": "normal",
        "status": 200,
        "ttft_s": total_s / 2,
    }
    given |= {"wait_s": total_s / 4, "gap_s": 0.01, "gap_max_s": 0.02, "tokens_out": 10, **more}
    return RequestSample(at_s=at_s, total_s=total_s, **given)


def failed(at_s: float, code: str = "queue_full", **more: Any) -> RequestSample:
    given: dict[str, Any] = {
        "user": "user-1",
        "priority": "normal",
        "status": 429,
        "total_s": 0.01,
        **more,
    }
    return RequestSample(at_s=at_s, code=code, **given)


def measured(samples: list[RequestSample], **more: Any) -> Measured:
    ended_s = max((sample.ended_s or 0.0 for sample in samples), default=0.0)
    given: dict[str, Any] = {
        "span_s": 10.0,
        "elapsed_s": max(10.0, ended_s),
        "messages": {},
        **more,
    }
    return Measured(samples=samples, **{"is_interrupted": False, **given})


def made(samples: list[RequestSample], **more: Any) -> Document:
    found = {"messages": {}, **{name: more.pop(name) for name in OF_RUN if name in more}}
    return document(measured(samples, **found), plan(**more), "2026-01-01T00:00:00+00:00", "0")


def codes(found: Measured) -> list[str]:
    return [sample.code for sample in found.samples]


CODES = ("", "", "queue_full", "timeout", NOT_SENT, UNFINISHED)
TIMES = st.floats(0.0, 100.0, allow_nan=False)


@st.composite
def samples(draw: st.DrawFn) -> list[RequestSample]:
    """Samples of any outcome, in the order in which they were due."""
    found = []
    for at_s in sorted(draw(st.lists(st.floats(0.0, 9.99), max_size=60))):
        code = draw(st.sampled_from(CODES))
        sample = RequestSample(
            at_s,
            draw(st.sampled_from(["alice", "bob", "carol"])),
            draw(st.sampled_from(["high", "normal"])),
            code,
            late_s=draw(st.floats(0.0, 0.01)),
        )
        if code not in (NOT_SENT, UNFINISHED):
            sample.total_s = sample.late_s + draw(TIMES)
        if not code:
            sample.ttft_s, sample.tokens_out = sample.total_s, draw(st.integers(0, 100))
        found.append(sample)
    return found
