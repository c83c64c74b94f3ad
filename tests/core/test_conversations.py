"""The conversations of one user take turns inside its own turns, as users do."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core import Arrived, KeyLimits, NodeChanged, Options, Resumed, Scheduler

from .rig import Rig

MIXTURES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=24)


def busy(**options: object) -> Rig:
    return Rig.busy(**{"max_size": 5000, "wait_s_max": 1e6, **options})


def send(rig: Rig, conversations: str, user: str = "u") -> list[str]:
    """Let one request after another wait, each of the conversation of that letter."""
    names = [f"{letter}{number}" for number, letter in enumerate(conversations)]
    for name in names:
        rig.wait(name, user=user, conversation=name[0])
    return names


def letters(names: list[str]) -> str:
    return "".join(name[0] for name in names)


def in_turn(names: list[str], party: dict[str, str]) -> list[str]:
    """The plain definition: everyone's first, then everyone's second; each round as they came."""
    rounds: dict[int, list[str]] = {}
    sent: Counter[str] = Counter()
    for name in names:
        rounds.setdefault(sent[party[name]], []).append(name)
        sent[party[name]] += 1
    return [name for turn in sorted(rounds) for name in rounds[turn]]


def test_a_conversation_that_runs_has_had_its_turn_when_the_second_comes() -> None:
    rig = Rig()
    rig.node()
    rig.start("A", user="u", conversation="A")
    send(rig, "AAAABB")
    assert letters(rig.run_dry("A")) == "BABAAA"


@given(drawn=MIXTURES, slots=st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_every_mixture_gets_turns_in_turn_at_both_levels(
    drawn: list[tuple[str, str]], slots: int
) -> None:
    rig = Rig(max_size=100)
    rig.node(slots=slots)
    running = [rig.start(f"z{number}").id for number in range(slots)]
    users: dict[str, str] = {}
    talks: dict[str, str] = {}
    for number, (user, talk) in enumerate(drawn):
        name = f"{user}{number}"
        users[name], talks[name] = user, talk
        rig.wait(name, conversation=talk)
    own = {user: in_turn([name for name in users if users[name] == user], talks) for user in "abc"}
    rounds = [
        sorted((names[turn] for names in own.values() if turn < len(names)), key=list(users).index)
        for turn in range(len(users))
    ]
    assert rig.run_dry(*running) == [name for turn in rounds for name in turn]


def test_ten_subagents_do_not_hold_back_the_main_thread() -> None:
    rig = busy()
    for agent in range(10):
        for number in range(5):
            rig.wait(f"s{agent}-{number}", user="u", conversation=f"agent{agent}")
    rig.wait("main", user="u", conversation="main")
    assert rig.run_dry("z").index("main") == 10


def test_many_conversations_are_no_larger_share_for_their_user() -> None:
    rig = busy()
    send(rig, "ABCDEF", user="many")
    for number in range(3):
        rig.wait(f"o{number}", user="one", conversation="o")
    assert letters(rig.run_dry("z")) == "AoBoCoDEF"


def test_requests_that_name_no_conversation_are_one() -> None:
    rig = busy()
    for name, talk in (("n1", ""), ("n2", ""), ("t1", "t"), ("n3", ""), ("t2", "t")):
        rig.wait(name, user="u", conversation=talk)
    assert rig.run_dry("z") == ["n1", "t1", "n2", "t2", "n3"]


@given(drawn=MIXTURES)
@settings(max_examples=30, deadline=None)
def test_first_come_first_served_has_no_turns(drawn: list[tuple[str, str]]) -> None:
    rig = busy(fairness="fifo")
    names = [f"{user}{number}" for number, (user, _) in enumerate(drawn)]
    for name, (_, talk) in zip(names, drawn, strict=True):
        rig.wait(name, conversation=talk)
    assert rig.run_dry("z") == names


def test_with_tokens_a_long_prompt_costs_its_own_conversation() -> None:
    rig = busy(fairness="tokens", output_weight=0.0)
    for name, tokens in (("A1", 300), ("A2", 100), ("B1", 100), ("B2", 100), ("B3", 100)):
        rig.wait(name, user="u", conversation=name[0], prompt_tokens=tokens)
    assert rig.run_dry("z") == ["A1", "B1", "B2", "B3", "A2"]


def test_what_an_answer_really_took_is_put_right_for_its_conversation() -> None:
    rig = busy(fairness="tokens", input_weight=0.0, output_weight=1.0, output_tokens_unmeasured=10)
    for name in ("A1", "A2", "B1", "B2", "B3"):
        rig.wait(name, user="u", conversation=name[0], output_limit=10)
    assert rig.finish("z", output_tokens=0) == ["A1"]
    assert rig.finish("A1", output_tokens=25) == ["B1"]
    assert rig.run_dry("B1") == ["B2", "B3", "A2"]


def test_one_that_comes_back_goes_before_the_turns() -> None:
    rig = busy()
    send(rig, "AABB")
    assert rig.finish("z") == ["A0"]
    rig.give_rest("n", 0.5)
    rig.come_back("A0", exclude=False)
    assert rig.describe("A0").position == 1
    started = rig.started(rig.tick(at_s=0.5))
    assert started + rig.run_dry(*started) == ["A0", "B2", "A1", "B3"]


@pytest.mark.parametrize("leaver", [0, 1, 2, 3])
def test_the_turns_close_up_when_one_leaves(leaver: int) -> None:
    rig = busy()
    names = send(rig, "AABB")
    rig.wait("other", user="o")
    rig.cancel(names.pop(leaver))
    order = in_turn(names, {name: name[0] for name in names})
    assert [name for name in rig.run_dry("z") if name != "other"] == order


def test_a_conversation_that_was_away_has_saved_up_no_turns() -> None:
    rig = busy()
    send(rig, "B" + "A" * 8)
    running = "z"
    for _ in range(5):
        running = rig.finish(running)[0]
    for number in range(3):
        rig.wait(f"B-late{number}", user="u", conversation="B")
    assert letters(rig.run_dry(running)) == "BABABAA"


def test_a_core_that_takes_over_lets_conversations_take_turns() -> None:
    core = Scheduler(Options())
    core.handle(NodeChanged("n", 1, ("m",)), 0.0)
    for seq, name in enumerate(("z", "A1", "A2", "A3", "B1", "B2"), 1):
        arrival = Arrived(name, "m", user="u", conversation=name[0])
        node = "n" if name == "z" else ""
        core.handle(Resumed(arrival, seq=seq, node=node), 1.0)
    rig = Rig()
    rig.core, rig.now_s = core, 1.0
    assert rig.run_dry("z") == ["A1", "B1", "A2", "B2", "A3"]


def test_idle_conversations_are_forgotten() -> None:
    """Of one who has always something waiting, and invents a name for each request."""
    rig = busy()
    running = "z"
    for number in range(1000):
        rig.wait(f"r{number}", user="u", conversation=f"invented{number}")
        if number:
            running = rig.finish(running)[0]
    turns = next(iter(rig.core._book.users.arrive("u").accounts.values())).turns
    assert turns is not None
    assert len(turns.accounts) < 70
    assert len(turns.heap) < 140


def test_nothing_is_kept_of_the_conversations_of_one_who_has_nothing_unfinished() -> None:
    rig = busy()
    send(rig, "ABAB")
    rig.run_dry("z")
    accounts = rig.core._book.users.arrive("u").accounts.values()
    assert [account.turns for account in accounts] == [None] * len(accounts)


@pytest.mark.parametrize("by", ["user", "conversation"])
def test_a_paced_key_lets_conversations_take_turns_as_users(by: str) -> None:
    rig = busy(key_limits={"k": KeyLimits(requests_per_minute=1)})
    for number, letter in enumerate("AAAABB"):
        rig.give_arrival(f"{letter}{number}", key="k", **{"user": "u", by: letter})
    order = rig.finish("z")
    for minute in range(1, 7):
        order += rig.finish(order[-1]) + rig.started(rig.tick(60.0 * minute))
    assert letters(order) == "AABABA"
