"""Who leads: the one that joined first, until it dies, leaves or steps down."""

from __future__ import annotations

from forebay.coordination.workers.election import Election


def led_by(election: Election) -> tuple[int, str]:
    state = election.state()
    return state.epoch, state.leader


def three() -> Election:
    election = Election()
    for member in ("a", "b", "c"):
        election.join(member, member.encode(), may_lead=True)
    return election


def test_the_first_that_joins_leads_and_stays_the_leader() -> None:
    election = three()
    assert led_by(election) == (1, "a")
    assert election.state().members == (("a", b"a"), ("b", b"b"), ("c", b"c"))


def test_when_the_leader_is_gone_the_next_eldest_leads_in_another_epoch() -> None:
    election = three()
    election.leave("a")
    assert led_by(election) == (2, "b")
    election.leave("c")
    assert led_by(election) == (2, "b")
    election.leave("b")
    assert led_by(election) == (2, "")
    election.join("d", b"d", may_lead=True)
    assert led_by(election) == (3, "d")


def test_one_that_may_not_lead_is_passed_over() -> None:
    election = three()
    election.join("b", b"b", may_lead=False)
    election.join("a", b"a", may_lead=False)
    assert led_by(election) == (2, "c")
    assert [member for member, _ in election.state().members] == ["a", "b", "c"]


def test_a_leader_that_steps_down_alive_leads_again_in_another_epoch() -> None:
    election = three()
    election.step_down("b", 1)
    election.step_down("a", 7)
    assert led_by(election) == (1, "a")
    election.step_down("a", 1)
    assert led_by(election) == (2, "a")


def test_nobody_takes_over_once_all_are_to_stop() -> None:
    election = three()
    election.is_over = True
    election.leave("a")
    assert led_by(election) == (1, "")
