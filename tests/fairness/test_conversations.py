"""Inside one user, conversations share what it gets as users share a node."""

from dataclasses import replace

import pytest

from forebay.core import Scheduler
from forebay.core.actions import Action
from forebay.core.events import Arrived, Event

from .judgement import assert_max_min, assert_no_pair_drifts_apart, largest_cost_over_weight
from .load import ROUND_ROBIN, TOKENS, Load, Party, Station, play

SETTLED_S = 0.5


def an_agent_and_its_subagents(slots: int = 1) -> Load:
    """One user: ten conversations that keep three waiting, and one that asks now and then."""
    agents = tuple(Party("ann", backlog=3, conversation=f"agent{n}") for n in range(10))
    times = tuple(float(turn) for turn in range(5, 380, 15))
    main = Party("ann", times=times, conversation="main")
    return Load((*agents, main), (Station(slots=slots),), duration_s=400.0, by_conversation=True)


@pytest.mark.parametrize("slots", [1, 3])
def test_every_conversation_gets_its_max_min_share(slots: int) -> None:
    log = play(an_agent_and_its_subagents(slots))
    assert_max_min(log, SETTLED_S, 400.0, slack=2.0)
    assert_no_pair_drifts_apart(log, bound=2.0)


def test_the_main_thread_waits_for_one_turn_of_each_subagent_at_most() -> None:
    log = play(an_agent_and_its_subagents())
    waits_s = [one.waited_s for one in log.dispatches if one.user == "main"]
    assert len(waits_s) == 25
    assert max(waits_s) <= 11.0


def test_costs_in_tokens_are_shared_between_conversations() -> None:
    talks = tuple(
        Party("ann", backlog=10, conversation=name, prompt_tokens=tokens, output_tokens=tokens)
        for name, tokens in (("short", 50), ("long", 400), ("longer", 900))
    )
    load = Load(talks, options=TOKENS, duration_s=600.0, by_conversation=True)
    log = play(load)
    assert_no_pair_drifts_apart(log, bound=3.0 * largest_cost_over_weight(load))


@pytest.mark.parametrize("options", [ROUND_ROBIN, TOKENS])
def test_conversations_that_come_back_keep_their_share(options: object) -> None:
    talks = [Party("ann", backlog=6, conversation=f"t{n}", returns=n) for n in range(3)]
    load = Load(tuple(talks), options=options, by_conversation=True)  # type: ignore[arg-type]
    assert_no_pair_drifts_apart(play(load), bound=3.0 * largest_cost_over_weight(load))


def test_users_share_alike_however_many_conversations_they_have() -> None:
    many = [Party("many", backlog=4, conversation=f"t{n}", weight=1.0) for n in range(8)]
    load = Load((*many, Party("one", backlog=6), Party("two", backlog=6, weight=2.0)))
    log = play(load)
    assert_max_min(log, SETTLED_S, 200.0, slack=2.0)
    assert_no_pair_drifts_apart(log, bound=2.0)


class Deaf:
    """The scheduler, told of no conversation: a control that the assertions must catch."""

    def __init__(self, load: Load) -> None:
        self._scheduler = Scheduler(load.options)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        if isinstance(event, Arrived):
            event = Arrived(event.id, event.model, user=event.user)
        return list(self._scheduler.handle(event, now_s))

    def next_deadline_s(self) -> float | None:
        return self._scheduler.next_deadline_s()


def test_one_line_for_all_conversations_is_caught() -> None:
    load = an_agent_and_its_subagents()
    crowd = tuple(replace(party, backlog=30 if party.backlog else 0) for party in load.parties[:1])
    load = replace(load, parties=(*crowd, *load.parties[1:]))
    with pytest.raises(AssertionError, match="drift"):
        assert_no_pair_drifts_apart(play(load, Deaf(load)), bound=2.0)
