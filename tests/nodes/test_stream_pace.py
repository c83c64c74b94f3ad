"""How much slower streams write with more at once, by how far each has come."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.nodes.stream_pace import PACES_MAX, WINDOW_BYTES, Stream, StreamPace

NAMES = "abcdefgh"


def streams(names: str, done: float, heard_s: float, model: str = "llama") -> list[Stream]:
    return [(model, name, done, heard_s) for name in names]


def paced(names: str, seconds: float, slots: int) -> StreamPace:
    """Return one that has seen these streams write a window in so many seconds each."""
    pace = StreamPace()
    pace.note(streams(names, 0, 0.0), slots)
    pace.note(streams(names, WINDOW_BYTES, seconds), slots)
    pace.rebase()
    return pace


def test_streams_are_compared_with_themselves() -> None:
    """Some bring more bytes a second than others; each takes twice as long as it did."""
    pace = StreamPace()
    for turn, at_s in enumerate((0.0, 1.0)):
        pace.note([("llama", name, turn * 3000 * (1 + ord(name) % 3), at_s) for name in "abcd"], 4)
    pace.rebase()
    for turn, at_s in enumerate((1.0, 3.0)):
        told = [("llama", name, (1 + turn) * 3000 * (1 + ord(name) % 3), at_s) for name in "abcd"]
        found = pace.note(told + streams("efgh", turn * 9000, at_s), 8)
    assert found is not None
    assert found.log == pytest.approx(log(2.0))
    assert found.error == pytest.approx(0.0)


def test_others_are_compared_with_those_before_them_where_these_have_ended() -> None:
    pace = paced("abcd", 1.0, 4)
    pace.note(streams("efgh", 0, 1.0), 4)
    found = pace.note(streams("efgh", WINDOW_BYTES, 2.5), 4)
    assert found is not None
    assert found.log == pytest.approx(log(1.5))


def test_what_those_before_differ_by_is_in_the_error() -> None:
    pace = StreamPace()
    pace.note(streams("abcd", 0, 0.0), 4)
    pace.note(
        [("llama", name, (1 + number) * WINDOW_BYTES, 1.0) for number, name in enumerate("abcd")], 4
    )
    pace.rebase()
    pace.note(streams("efgh", 0, 1.0), 4)
    found = pace.note(streams("efgh", WINDOW_BYTES, 2.0), 4)
    assert found is not None
    assert found.error > 0.2


def test_a_slower_model_is_not_taken_for_slower_streams() -> None:
    """Half of those before were of a model that is three times as fast."""
    pace = StreamPace()
    for done, slow in ((0, 0), (3 * WINDOW_BYTES, WINDOW_BYTES)):
        pace.note(streams("abcd", done, done / 9e3) + streams("efgh", slow, done / 9e3, "qwen"), 8)
    pace.rebase()
    pace.note(streams("ijklmnop", 0, 9.0, "qwen"), 8)
    found = pace.note(streams("ijklmnop", WINDOW_BYTES, 9.0 + WINDOW_BYTES / 3e3, "qwen"), 8)
    assert found is not None
    assert found.log == pytest.approx(0.0, abs=1e-6)


def test_a_model_that_did_not_run_before_says_nothing() -> None:
    pace = paced("abcd", 1.0, 4)
    pace.note(streams("efgh", 0, 1.0, "qwen"), 4)
    assert pace.note(streams("efgh", WINDOW_BYTES, 9.0, "qwen"), 4) is None


def test_a_time_in_which_the_limit_is_not_reached_says_nothing() -> None:
    pace = paced("abcd", 1.0, 4)
    assert pace.note(streams("abcd", 0, 1.0), 8) is None
    assert pace.note(streams("abcd", WINDOW_BYTES, 9.0), 8) is None
    pace.note(streams(NAMES, WINDOW_BYTES, 9.0), 8)
    assert pace.note(streams("abcd", 2 * WINDOW_BYTES, 10.0), 8) is None  # the window is broken
    assert pace.note(streams(NAMES, 3 * WINDOW_BYTES, 11.0), 8) is None
    assert pace.note(streams(NAMES, 4 * WINDOW_BYTES, 12.0), 8) is not None


def test_a_few_bytes_say_nothing() -> None:
    pace = paced("abcd", 1.0, 4)
    pace.note(streams("abcd", 0, 1.0), 4)
    assert pace.note(streams("abcd", WINDOW_BYTES - 1, 2.0), 4) is None
    assert pace.note(streams("abcd", WINDOW_BYTES, 2.0), 4) is not None


def test_a_window_whose_streams_have_ended_begins_anew() -> None:
    pace = paced("abcd", 1.0, 4)
    pace.note(streams("abcd", 0, 1.0), 4)
    assert pace.note(streams("efgh", 5, 2.0), 4) is None
    assert pace.note(streams("efgh", 5 + WINDOW_BYTES, 3.0), 4) is not None


def test_nothing_is_said_of_streams_that_nothing_is_known_before() -> None:
    pace = StreamPace()
    pace.note(streams("abcd", 0, 1.0), 4)
    assert pace.note(streams("abcd", WINDOW_BYTES, 2.0), 4) is None


def test_one_stream_says_it_where_one_runs_at_a_time() -> None:
    pace = StreamPace()
    for number in range(4):
        pace.note([("llama", str(number), 0, 2.0 * number)], 1)
        pace.note([("llama", str(number), 5000, 2.0 * number + 1.0)], 1)
    pace.rebase()
    pace.note(streams("ab", 0, 10.0), 2)
    found = pace.note(streams("ab", 5000, 12.0), 2)
    assert found is not None
    assert found.log == pytest.approx(log(2.0))


def test_what_it_remembers_is_bounded() -> None:
    pace = StreamPace()
    for number in range(3 * PACES_MAX):
        pace.note([("llama", str(number), 0, 2.0 * number)], 1)
        pace.note([("llama", str(number), 5000, 2.0 * number + 1.0)], 1)
    assert len(pace._paces) == PACES_MAX


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["llama", "qwen"]),
                st.sampled_from(NAMES),
                st.floats(0, 1e9),
                st.floats(0, 1e9),
            ),
            unique_by=lambda one: one[1],
        )
        | st.none(),
        max_size=40,
    ),
    st.integers(1, 8),
)
def test_whatever_streams_say_nothing_breaks(told: list[list[Stream] | None], slots: int) -> None:
    pace = StreamPace()
    for some in told:
        if some is None:
            pace.rebase()
        else:
            found = pace.note(some, slots)
            assert found is None or found.error >= 0.0
