"""What the workers that do not lead tell the leader of the nodes whose slots it finds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from forebay.gateway.workers.asides import NodeNews, NodeState, SlotsSeen
from forebay.gateway.workers.node_news import RECOUNT_S, NodeNewsChannel
from forebay.nodes.registry import Nodes
from forebay.nodes.slot_rounds import Sample
from forebay.nodes.slot_sharing import (
    Answered,
    BrokenOff,
    FollowedLimit,
    FoundSlots,
    LeadingLimit,
    Refused,
    SlotReport,
)
from forebay.settings import parse_node
from forebay.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from forebay.coordination.workers.store import WorkerStore
    from forebay.gateway.fleet.guarded_nodes import GuardedNodes
    from forebay.gateway.workers.asides import Aside, Asides
    from forebay.nodes.backend import Backend

SAMPLE = Sample("m", 10, 5, 0.1, 0.5)
SETTINGS = {"name": "gpu1", "url": "http://127.0.0.1:9", "kind": "openai"}


class Channel:
    """One worker's channel, the messages that it sends, and the node that it knows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.members = {"this", "other"}
        self.clock = FakeClock()
        self.nodes = Nodes(lambda _: None, self.clock)
        self.nodes.connect(lambda _: None)
        self.sent: list[Aside] = []
        self._takers: dict[type, Callable[[str, Aside], None]] = {}
        self.news = NodeNewsChannel(
            cast("WorkerStore", self), cast("Asides", self), self.nodes,
            cast("GuardedNodes", None), self.clock,
        )  # fmt: skip
        self.in_use = 0
        self._patch = monkeypatch

    def take(self, kind: type, taker: Callable[[str, Aside], None]) -> None:
        self._takers[kind] = taker

    def send(self, message: Aside, member: str = "") -> bool:
        self.sent.append(message)
        return True

    def hear(self, message: Aside) -> None:
        self._takers[type(message)]("other", message)

    def follow(self, slots: int) -> FollowedLimit:
        """Hear of the node from the leader, and return its limit here."""
        state = NodeState(SETTINGS, "", found=FoundSlots(slots, "tried", workers=2))
        self.hear(NodeNews((state,), whole=True))
        assert isinstance(self.backend.limit, FollowedLimit)
        self._patch.setattr(self.backend, "running", lambda: self.in_use)
        return self.backend.limit

    def lead(self) -> LeadingLimit:
        """Lead from now on, and return the limit of the node here."""
        self.news.lead()
        self.sent.clear()
        assert isinstance(self.backend.limit, LeadingLimit)
        return self.backend.limit

    @property
    def backend(self) -> Backend:
        backend = self.nodes.get("gpu1")
        assert backend is not None
        return backend

    def reports(self) -> list[SlotReport]:
        """Return what was reported since the last call."""
        sent = [
            one
            for message in self.sent
            if isinstance(message, SlotsSeen)
            for one in message.reports
        ]
        self.sent.clear()
        return sent


async def test_what_is_seen_in_a_turn_of_the_loop_is_reported_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = Channel(monkeypatch)
    limit = channel.follow(4)
    assert (channel.backend.told.slots, channel.backend.told.follows) == (4, True)
    channel.in_use = 3
    for _ in range(2):
        limit.note(SAMPLE, 1.0, 2.0, running=3)
    assert channel.reports() == []
    await asyncio.sleep(0)
    answered = Answered(SAMPLE, 1.0, 2.0, 3)
    assert channel.reports() == [SlotReport("gpu1", 3, [answered, answered])]
    channel.nodes.stop()


async def test_a_refusal_is_reported_before_anything_else_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = Channel(monkeypatch)
    channel.follow(4).note_refused(2.0)
    assert channel.reports() == [SlotReport("gpu1", 0, [Refused(2.0)])]
    await asyncio.sleep(0)
    assert channel.reports() == []
    channel.nodes.stop()


async def test_requests_that_end_without_an_answer_are_counted_down_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = Channel(monkeypatch)
    channel.in_use = 3
    channel.follow(4).note_refused(2.0)
    channel.reports()
    told = []
    for channel.in_use in (3, 1, 0, 0):
        channel.clock.advance(RECOUNT_S)
        told.append(channel.reports())
    assert told == [[], [SlotReport("gpu1", 1)], [SlotReport("gpu1", 0)], []]
    channel.nodes.stop()


async def test_the_next_leader_finds_slots_from_those_it_knows_and_reports_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = Channel(monkeypatch)
    channel.follow(4).note(SAMPLE, 1.0, 2.0, running=4)
    channel.news.lead()
    await asyncio.sleep(0)
    assert channel.reports() == []
    limit = channel.backend.limit
    assert isinstance(limit, LeadingLimit)
    told = channel.backend.told
    assert (limit.slots, told.slots, told.follows) == (4, 4, False)
    assert channel.backend.slots_reason == "tried"
    channel.hear(SlotsSeen([SlotReport("gpu1", 2), SlotReport("gone", 2)]))
    assert limit.total(1) == 3
    channel.nodes.stop()


async def test_requests_of_a_worker_that_is_gone_are_forgotten_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may take seconds until the next one is there."""
    channel = Channel(monkeypatch)
    channel.follow(4)
    limit = channel.lead()
    channel.hear(SlotsSeen([SlotReport("gpu1", 3)]))
    assert limit.total(1) == 4
    channel.news.forget("other")
    assert limit.total(1) == 1
    channel.nodes.stop()


async def test_requests_that_ran_before_a_node_had_a_number_set_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is heard meanwhile, and those that ended do not say so again."""
    channel = Channel(monkeypatch)
    channel.follow(4)
    channel.lead()
    channel.hear(SlotsSeen([SlotReport("gpu1", 3)]))
    channel.nodes.replace(parse_node({**SETTINGS, "slots": 2}))
    channel.hear(SlotsSeen([SlotReport("gpu1", 0)]))
    limit = channel.nodes.replace(parse_node(SETTINGS)).limit
    assert isinstance(limit, LeadingLimit)
    assert (limit.slots, limit.total(0)) == (4, 0)
    channel.nodes.stop()


async def test_a_leader_that_begins_is_told_how_many_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams may go on for long before there is anything else to say."""
    channel = Channel(monkeypatch)
    limit = channel.follow(4)
    channel.in_use = 3
    limit.note(SAMPLE, 1.0, 2.0, running=3)
    await asyncio.sleep(0)
    channel.reports()
    channel.follow(4)
    await asyncio.sleep(0)
    assert channel.reports() == [SlotReport("gpu1", 3)]
    channel.nodes.stop()


async def test_what_ends_at_a_server_that_had_the_name_before_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = Channel(monkeypatch)
    former = channel.follow(4)
    other = NodeState({**SETTINGS, "url": "http://127.0.0.1:8"}, "", found=FoundSlots(1))
    channel.hear(NodeNews((other,), whole=True))
    await asyncio.sleep(0)
    channel.reports()
    former.note(SAMPLE, 1.0, 2.0, running=4)
    former.note_timed_out(1.0, 2.0)
    await asyncio.sleep(0)
    assert channel.reports() == []
    channel.nodes.stop()


async def test_a_node_that_refuses_after_any_worker_broke_off_has_not_fewer_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may not know yet that what ran there is gone."""
    channel = Channel(monkeypatch)
    channel.follow(4)
    limit, now_s = channel.lead(), channel.clock.monotonic_s()
    refused = SlotsSeen([SlotReport("gpu1", 1, [Refused(now_s)])])
    channel.backend.broken_off()
    channel.hear(refused)
    assert limit.slots == 4
    channel.clock.advance(5.0)
    broken_off = BrokenOff(channel.clock.monotonic_s())
    channel.hear(SlotsSeen([SlotReport("gpu1", 1, [broken_off])]))
    assert not channel.backend.busy(started_s=0.0)
    assert limit.slots == 4
    channel.clock.advance(5.0)
    channel.backend.busy(started_s=0.0)
    assert limit.slots == 3
    channel.nodes.stop()


async def test_a_request_that_is_broken_off_is_reported_before_its_slot_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = Channel(monkeypatch)
    channel.follow(4)
    channel.backend.broken_off()
    now_s = channel.clock.monotonic_s()
    assert channel.reports() == [SlotReport("gpu1", 0, [BrokenOff(now_s)])]
    channel.nodes.stop()


async def test_a_number_that_the_leader_changes_is_known_to_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = Channel(monkeypatch)
    channel.follow(4)
    channel.news.lead()
    await asyncio.sleep(0)
    channel.sent.clear()
    channel.hear(SlotsSeen([SlotReport("gpu1", 1, [Refused(5.0)])]))
    await asyncio.sleep(0)
    (message,) = channel.sent
    assert isinstance(message, NodeNews)
    (state,) = message.nodes
    assert state.found is not None
    assert (state.found.slots, state.found.reason) == (
        3, "the node refused a request as one too many"
    )  # fmt: skip
    channel.nodes.stop()
