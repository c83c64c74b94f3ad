"""Who is there, and who was a moment ago."""

from __future__ import annotations

from forebay.coordination.membership import NAMESAKES, REMEMBERED, Roster
from forebay.coordination.protocol.messages import About
from forebay.coordination.protocol.messages import MemberStatus as Replica
from forebay.coordination.store.port import StoreReply

ME, B, C = (About(f"{name}-1", f"http://{name}") for name in "abc")


def roster(*others: About, now_s: float = 0.0) -> Roster:
    made = Roster(ME, 5.0)
    made.update(StoreReply(1, "a-1", 5.0, (ME, *others)), now_s)
    return made


def test_others_are_found_by_name_and_oneself_is_not() -> None:
    made = roster(B, About("c-1"))
    assert made.address_of("b") == "http://b"
    assert made.address_of("a") is made.address_of("c") is made.address_of("x") is None
    assert made.addresses() == ["http://b"]


def test_one_that_restarted_takes_the_place_of_its_old_self() -> None:
    made = roster(B)
    made.update(StoreReply(1, "", 0.0, (ME, B, About("b-2", "http://new"))), 1.0)
    assert made.address_of("b") == "http://new"
    assert len(made.views((), "", 1.0)) == 2


def test_nobody_takes_the_place_of_oneself() -> None:
    made = roster(About("a-2", "http://twin"))
    assert [view.address for view in made.views((), "", 1.0)] == ["http://a"]


def test_one_that_vanished_is_lost_after_two_leases_and_forgotten_much_later() -> None:
    made = roster(B)
    assert [view.state for view in made.views((), "a-1", 10.0)] == ["leading", "following"]
    assert [view.state for view in made.views((), "a-1", 10.1)] == ["leading", "lost"]
    gone = StoreReply(1, "a-1", 5.0, (ME,))
    made.update(gone, REMEMBERED * 5.0)
    assert len(made.views((), "", 0.0)) == 2
    made.update(gone, REMEMBERED * 5.0 + 1.0)
    assert [view.name for view in made.views((), "", 0.0)] == ["a"]


def test_one_that_said_goodbye_is_not_lost_but_gone_once_the_store_has_forgotten_it() -> None:
    made = roster(B, C)
    made.leave("b-1")
    made.update(StoreReply(1, "a-1", 5.0, (ME, B, C)), 1.0)
    assert made.address_of("b") == "http://b"  # it may still finish something
    made.update(StoreReply(1, "a-1", 5.0, (ME, C)), 2.0)
    assert [view.name for view in made.views((), "a-1", 2.0)] == ["a", "c"]
    made.update(StoreReply(1, "a-1", 5.0, (ME, C, About("b-2", "http://b"))), 3.0)
    assert [view.name for view in made.views((), "a-1", 3.0)] == ["a", "b", "c"]


def test_views_have_what_the_leader_knows() -> None:
    views = roster(B).views([Replica(B, 3, 4, 2, 0.5)], "b-1", 1.0)
    assert (views[1].waiting, views[1].running, views[1].lent) == (3, 4, 2)
    assert (views[1].state, views[1].heard_s, views[0].heard_s) == ("leading", 1.0, 0.0)


def test_those_of_two_leases_ago_may_still_have_work_running() -> None:
    made = roster(B)
    made.update(StoreReply(1, "a-1", 5.0, (ME, C)), 4.0)
    led = (Replica(About("d-1")),)
    assert made.expected((), 10.0) == {"b-1", "c-1"}
    assert made.expected(led, 12.0) == {"c-1", "d-1"}
    made.leave("c-1")
    assert made.expected(led, 12.0) == {"d-1"}


def test_one_that_is_introduced_anew_knows_no_address_of_its_own() -> None:
    made = roster()
    made.introduce(About("a-1", "http://a", settings="new"))
    assert made.address_of("a") is None


def test_a_namesake_is_told_of_once_and_not_for_a_restart() -> None:
    made, twin = roster(), About("a-2", "http://a")
    told = [made.has_namesake(StoreReply(1, "", 0.0, (ME, twin))) for _ in range(NAMESAKES + 5)]
    assert told.count(True) == 1
    made = roster()
    for _ in range(NAMESAKES - 1):
        assert not made.has_namesake(StoreReply(1, "", 0.0, (ME, twin)))
    assert not made.has_namesake(StoreReply(1, "", 0.0, (ME,)))


def test_leaders_that_left_one_after_the_other_are_all_not_waited_for() -> None:
    made = roster(B, C)
    made.leave("b-1")
    made.leave("c-1")
    assert made.expected([Replica(B), Replica(C), Replica(About("d-1"))], 1.0) == {"d-1"}


def test_settings_other_than_the_leaders_are_named_once() -> None:
    mine = About("a-1", settings="1", given={"queue.max_size": "7", "nodes": "n"})
    theirs = About("b-1", settings="2", given={"queue.max_size": "9", "models.aliases": "x"})
    led = StoreReply(1, "b-1", 5.0, (mine, theirs, About("c-1", settings="3")))
    made = Roster(mine, 5.0)
    assert made.differing(led) == ("models.aliases", "nodes", "queue.max_size")
    assert made.differing(led) == ()
    assert made.differing(StoreReply(1, "a-1", 5.0, led.members)) == ()  # it is the leader itself
    assert made.differing(StoreReply(1, "", 0.0, led.members)) == ()
    assert made.differing(led) == ()
    made.introduce(About("a-1", settings="4", given={**theirs.given, "nodes": "n"}))
    assert made.differing(led) == ("nodes",)  # its settings were changed
    made.introduce(About("a-1", settings="2", given=theirs.given))
    assert made.differing(led) == ()
