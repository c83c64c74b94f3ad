"""Reading access logs and traces; more users; the nodes of a log."""

from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from forebay.load.plan import parse_mix
from forebay.load.quantities import BadPlan
from forebay.planning.fitting import Fits
from forebay.planning.fleet import most_at_once, parse_nodes, recorded_nodes
from forebay.planning.summary import summarise_recorded
from forebay.planning.traffic import Traffic, read_traffic, scaled, with_users

from .making import BEGAN_S, line, refused, request, write

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = Fits({}, {"slow": 2.0}, 0.0, {})


def test_a_log_is_put_in_the_order_of_arrival_and_says_what_became_of_each(tmp_path: Path) -> None:
    lines = [line(5, waited_s=1.0), refused(2, model="", user_hash="bb"), line(0, run_s=9.0)]
    traffic = read_traffic(write(tmp_path / "log", *lines))
    assert [one.at_s for one in traffic.requests] == [0.0, 2.0, 5.0]
    assert [one.run_s for one in traffic.requests] == [9.0, 0.0, 1.0]
    assert [one.model for one in traffic.requests] == ["m", "m", "m"]  # the usual one
    recorded = summarise_recorded(traffic.recorded)
    assert (recorded.all.ok, recorded.refused) == (2, 1)
    assert recorded.all.wait is not None
    assert recorded.all.wait.max == 1.0
    assert set(recorded.by_user) == {"aa", "bb"}


def test_lines_of_others_and_requests_that_no_queue_had_are_left_out(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log",
        line(0),
        line(1, outcome="model_not_found", node=""),
        line(2, id="", outcome="invalid_request"),
    )
    with path.open("a") as file:
        file.write('{"level": "info", "message": "node n1 online"}\nhello\n\n')
    traffic = read_traffic(path)
    assert (len(traffic.requests), traffic.skipped) == (1, 4)


def test_all_that_a_gateway_writes_may_be_in_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "log", line(0), line(1))
    greeting = 'Forebay is at http://127.0.0.1:7800\n\n{"level": "info", "message": "ready"}\n'
    path.write_text(greeting + path.read_text())
    traffic = read_traffic(path)
    assert (traffic.source, len(traffic.requests), traffic.skipped) == ("access log", 2, 2)


@pytest.mark.parametrize(
    "nonsense",
    [{"weight": 0.0}, {"weight": 1e300}, {"run_ms": -5}, {"arrived": 1e300}, {"time": "soon"}],
)
def test_lines_that_no_gateway_has_written_are_left_out(
    tmp_path: Path, nonsense: dict[str, Any]
) -> None:
    wrong = replace(line(1), **nonsense)
    assert read_traffic(write(tmp_path / "log", line(0), wrong)).skipped == 1


def test_a_log_of_an_older_gateway_is_read_too(tmp_path: Path) -> None:
    lines = [line(0, arrived=0.0), line(7, waited_s=2.0, arrived=0.0)]
    traffic = read_traffic(write(tmp_path / "log", *lines))
    assert [one.at_s for one in traffic.requests] == [0.0, 7.0]


def test_a_retried_request_came_when_it_came_and_not_before_its_last_attempt(
    tmp_path: Path,
) -> None:
    lines = [line(0), line(9, arrived=BEGAN_S + 4, attempt=2)]
    first, retried = read_traffic(write(tmp_path / "log", *lines)).requests
    assert (retried.at_s, retried.is_whole, first.is_whole) == (4.0, False, True)


def test_who_left_while_waiting_leaves_again_after_as_long(tmp_path: Path) -> None:
    left = line(1, waited_s=3.0, run_s=0.0, outcome="cancelled", node="", status=0)
    broke_off = line(2, run_s=0.5, outcome="cancelled")
    _, first, second = read_traffic(write(tmp_path / "log", line(0), left, broke_off)).requests
    assert first.leaves_after_s == pytest.approx(3.0)
    assert second.leaves_after_s is None
    assert second.run_s == 0.5


def test_traces_in_csv_and_in_json_lines_are_read(tmp_path: Path) -> None:
    csv, mooncake = tmp_path / "t.csv", tmp_path / "t.jsonl"
    csv.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.5,10,2\n")
    rows = [{"timestamp": 3000, "input_length": 7, "output_length": 5, "hash_ids": [1]},
            {"timestamp": 500, "input_length": 3, "output_length": 1}]  # fmt: skip
    mooncake.write_text("\n".join(map(json.dumps, rows)))
    [only] = read_traffic(csv).requests
    assert (only.at_s, only.prompt_tokens, only.output_tokens) == (0.0, 10, 2)
    first, second = read_traffic(mooncake).requests
    assert (first.at_s, second.at_s, second.prompt_tokens) == (0.0, 2.5, 7)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "is empty"),
        ('{"a": 1}\n', "no request that ran"),
        ('{"at_s": "x"}\n', "line 1"),
        ('{"at_s": 1, "prompt_tokens": -1, "output_tokens": 1}\n', "tokens from 0"),
        ('{"at_s": 1, "output_tokens": 1}\n', "line 1: no input_length or prompt_tokens"),
        ('{"timestamp": 1, "input_length": 3}\n', "line 1: no output_length or output_tokens"),
        ('{"timestamp": 1e99}\n', "line 1"),
        ("a,b\n1,2\n", "no column for the time"),
    ],
)
def test_what_cannot_be_replayed_is_said(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(BadPlan, match=wrong):
        read_traffic(path)


@pytest.mark.parametrize("first", ['{"timestamp": 1, "message": "ready"}', '{"at_s": 1}', "x,y"])
def test_lines_of_requests_make_a_file_a_log_whatever_is_before_them(
    tmp_path: Path, first: str
) -> None:
    path = write(tmp_path / "log", line(0), line(1))
    path.write_text(f"{first}\n{path.read_text()}")
    traffic = read_traffic(path)
    assert (traffic.source, len(traffic.requests), traffic.skipped) == ("access log", 2, 1)


@pytest.mark.parametrize("prefix", ["Nov 18 20:22:08 host forebay[12]: ", "forebay-1  | "])
def test_what_a_collector_writes_before_each_line_is_said(tmp_path: Path, prefix: str) -> None:
    path = write(tmp_path / "log", line(0), line(1))
    path.write_text("".join(prefix + text + "\n" for text in path.read_text().splitlines()))
    with pytest.raises(BadPlan, match="journalctl -o cat"):
        read_traffic(path)


def test_a_pipe_is_refused_before_anything_is_read_from_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(BadPlan, match="not a regular file"):
        read_traffic(path)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"{}" * 99), "{}".encode("utf-16"), b"\xff,"],
    ids=["gzip", "UTF-16", "binary"],
)
def test_what_is_no_text_is_said_of_the_option_that_was_given(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadPlan, match=r"--from: .* it is not UTF-8 text"):
        read_traffic(path)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadPlan, match="cannot be read"):
        read_traffic(tmp_path / "nowhere")


# -- users


def of_users(**counts: int) -> Traffic:
    requests = [
        request(float(number), user=user)
        for user, count in counts.items()
        for number in range(count)
    ]
    return Traffic("trace", sorted(requests, key=lambda one: one.at_s), [])


def test_twice_the_users_are_other_users_who_ask_as_much_within_the_same_time() -> None:
    traffic = of_users(alice=1000, bob=10)
    doubled = scaled(traffic, 2.0, 0)
    asked = {user: sum(one.user == user for one in doubled) for user in {o.user for o in doubled}}
    assert asked == {"alice": 1000, "bob": 10, "alice~2": 1000, "bob~2": 10}
    assert [one.at_s for one in doubled] == sorted(one.at_s for one in doubled)
    assert doubled[0].at_s >= 0
    assert doubled[-1].at_s <= traffic.span_s
    copied = [one.at_s for one in doubled if one.user == "bob~2"]
    assert not set(copied) & {one.at_s for one in traffic.requests}


def test_half_as_many_again_is_some_of_the_users_whole() -> None:
    traffic = of_users(**{f"u{number}": 10 for number in range(20)})
    assert len(scaled(traffic, 1.5, 0)) == 300
    assert len(scaled(traffic, 0.5, 0)) == 100
    assert scaled(traffic, 1.0, 0) is traffic.requests
    assert scaled(traffic, 1.5, 7) == scaled(traffic, 1.5, 7) != scaled(traffic, 1.5, 8)


def test_of_requests_without_a_user_a_share_is_drawn() -> None:
    traffic = Traffic("trace", [request(float(number)) for number in range(1000)], [])
    counts = [len(scaled(traffic, factor, 0)) for factor in (0.5, 1.5, 2.0, 2.25)]
    assert counts == pytest.approx([500, 1500, 2000, 2250], abs=60)
    more = scaled(traffic, 1.5, 0)
    assert [one for one in more if not one.user] == traffic.requests


def test_too_much_or_nothing_is_refused() -> None:
    with pytest.raises(BadPlan, match="more than 1,000,000"):
        scaled(of_users(alice=2000), 999.0, 0)
    with pytest.raises(BadPlan, match="leaves no user"):
        scaled(of_users(alice=2000), 0.1, 0)


def test_requests_without_a_user_get_one_and_others_keep_theirs() -> None:
    traffic = Traffic("trace", [request(0.0), request(1.0, user="carol")], [])
    users = [one.user for one in with_users(traffic, parse_mix("alice", "x", "u"), 0).requests]
    assert users == ["alice", "carol"]


# -- nodes


def test_nodes_are_read_as_they_are_typed() -> None:
    traffic = Traffic("trace", [request(0.0, model="llama3.1:8b"), request(0.0, model="b")], [])
    nodes = parse_nodes("2xgpu:8,llama3.1:8b:2,slow:1", traffic, NOTHING)
    everything = ("llama3.1:8b", "b")
    assert [(node.name, node.slots, node.models, node.slowness) for node in nodes] == [
        ("gpu-1", 8, everything, 1.0),
        ("gpu-2", 8, everything, 1.0),
        ("llama3.1:8b", 2, ("llama3.1:8b",), 1.0),
        ("slow", 1, everything, 2.0),
    ]


@pytest.mark.parametrize(
    "text",
    ["", "gpu", "3xgpu", "gpu:0", "0xgpu:1", "gpu:1,gpu:2", "a b:1", "-1xl:8", "n1:3;n2:3",
     "3\u00d7llama:8", "unseen:8b:2", "10000xgpu:8", "999999999xgpu:8", "gpu:100000"],
)  # fmt: skip
def test_nodes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(BadPlan, match="--nodes"):
        parse_nodes(text, Traffic("trace", [request(0.0)], []), NOTHING)


def test_the_nodes_of_a_log_have_the_slots_that_were_seen_or_set(tmp_path: Path) -> None:
    lines = [
        line(0, run_s=4.002),
        line(1, run_s=3.003, model="other"),
        line(2, waited_s=2.0, run_s=1.0),  # begins as the first ends: by rounding, before
        line(3, node="slow"),
    ]
    traffic = read_traffic(write(tmp_path / "log", *lines))
    assert most_at_once(traffic) == {"n1": 2, "slow": 1}
    nodes = recorded_nodes(traffic, NOTHING, {"slow": 8, "n1": 0})
    assert [(node.name, node.slots, node.models, node.slowness) for node in nodes] == [
        ("n1", 2, ("m", "other"), 1.0),
        ("slow", 8, ("m",), 2.0),
    ]
    with pytest.raises(BadPlan, match="Name them: --nodes"):
        recorded_nodes(Traffic("trace", [request(0.0)], []), NOTHING, {})
