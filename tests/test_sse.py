"""The one parser of server-sent events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.sse import BadStream, SseComment, SseEvent, SseLines, SseParser


@given(st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"data: b", b""])), st.data())
def test_lines_are_the_same_wherever_the_bytes_are_cut(
    pieces: list[bytes], data: st.DataObject
) -> None:
    text = b"".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    lines = SseLines(1000)
    found = [
        line
        for start, end in pairwise([0, *cuts, len(text)])
        for line in lines.feed(text[start:end])
    ]
    expected = text.splitlines()
    last = [] if text[-1:] in (b"", b"\n") else [lines.end()]  # of a \r, \n may be the other half
    assert [*found, *last] == expected


def test_events_are_cut_wherever_the_network_cuts_them() -> None:
    text = ": hi\r\nid: 7\nevent: a\ndata: x\ndata:y\n\nretry: 5\n\ndata: ü\n\n".encode()
    for cut in range(len(text)):
        stream = SseParser()
        found = [*stream.feed(text[:cut]), *stream.feed(text[cut:])]
        assert found == [SseComment("hi"), SseEvent("a", "x\ny", "7"), SseEvent("", "ü", "")]


def test_an_event_that_is_too_long_is_refused() -> None:
    for piece in (b"data: " + b"x" * 100, b"data: x\n" * 20):
        with pytest.raises(BadStream):
            list(SseParser(64).feed(piece))
    with pytest.raises(BadStream):
        list(SseParser().feed(b"data: \xff\n"))
    assert len(list(SseParser(64).feed(b": heartbeat\n\n" * 50))) == 50
