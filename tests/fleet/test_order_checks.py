"""The judge of order sees who was overtaken, and what two users got of each other's turns."""

from __future__ import annotations

from harness.fleet.journal import Asked, Journal, Run, Window
from harness.fleet.order_checks import (
    TOLERANCE_S,
    overtaken_in_line,
    unfairness,
    urgent_kept_waiting,
)
from harness.fleet.trial import judge, lateness_s


def seen(*every: tuple[str, str, float, float]) -> Journal:
    """Make a journal of (user, class, sent, began); ids are their places in the list, from 0."""
    runs, asked = [], []
    for number, (user, priority, sent_s, began_s) in enumerate(every):
        id = str(number)
        runs.append(Run(id, "a", began_s, began_s + 0.5, "served"))
        asked.append(Asked(id, user, priority, 0, sent_s, began_s + 0.5, 200, "", 1))
    return Journal(runs, asked, {"a": 1}, 100.0)


def test_first_come_first_served_is_in_order() -> None:
    journal = seen(("ann", "normal", 0, 1), ("ann", "normal", 1, 2), ("ann", "normal", 2, 3))
    assert overtaken_in_line(journal) == []


def test_one_that_began_before_an_earlier_one_is_found_with_who_and_when() -> None:
    journal = seen(("ann", "normal", 0, 5), ("ann", "normal", 1, 2), ("ann", "normal", 2, 6))
    (found,) = overtaken_in_line(journal)
    assert (found.first, found.overtaker, found.at_s, found.by_s) == ("0", "1", 2, 3)


def test_everyone_who_overtook_is_counted_once() -> None:
    journal = seen(("ann", "normal", 0, 9), *(("ann", "normal", n, n + 1) for n in range(1, 5)))
    assert {found.overtaker for found in overtaken_in_line(journal)} == {"1", "2", "3", "4"}


def test_users_and_classes_have_lines_of_their_own() -> None:
    journal = seen(("ann", "normal", 0, 5), ("bob", "normal", 1, 2), ("ann", "high", 2, 3))
    assert overtaken_in_line(journal) == []


def test_what_is_closer_than_a_clock_can_tell_is_no_order() -> None:
    little_s = TOLERANCE_S / 2
    sent_together = seen(("ann", "normal", 0, 5), ("ann", "normal", little_s, 2))
    begun_together = seen(("ann", "normal", 0, 5 + little_s), ("ann", "normal", 1, 5))
    assert overtaken_in_line(sent_together) == overtaken_in_line(begun_together) == []


def test_an_urgent_one_that_waits_while_another_begins_is_found() -> None:
    journal = seen(("eve", "high", 1, 5), ("ann", "normal", 0, 3), ("bob", "low", 0, 4))
    assert [found.overtaker for found in urgent_kept_waiting(journal)] == ["1", "2"]


def test_an_urgent_one_that_came_later_or_began_first_was_not_kept_waiting() -> None:
    journal = seen(("eve", "high", 3, 5), ("ann", "normal", 0, 3), ("bob", "low", 0, 6))
    assert urgent_kept_waiting(journal) == []


def test_exact_turns_are_fair() -> None:
    every = [("ann" if n % 2 else "bob", "normal", 0.0, float(n + 1)) for n in range(10)]
    assert unfairness(seen(*every), "ann", "bob") == 1


def test_one_user_before_another_who_waits_is_told_by_how_many() -> None:
    every = [("ann" if n < 7 else "bob", "normal", 0.0, float(n + 1)) for n in range(10)]
    assert unfairness(seen(*every), "ann", "bob") == 7


def test_a_user_alone_may_have_it_all() -> None:
    every = [("ann" if n < 7 else "bob", "normal", n * 1.0, n + 0.5) for n in range(10)]
    assert unfairness(seen(*every), "ann", "bob") == 0


def test_a_machine_that_answers_late_is_given_that_time_except_while_something_is_wrong() -> None:
    journal = seen(*(("ann", "normal", n, 10 - n) for n in range(5)))  # the last comes first
    assert len(judge(journal, [], {}, 1.0).wrong) == 1
    journal.pulses = [Window(50.0, 50.1), Window(60.0, 68.0)]
    assert lateness_s(journal, []) == 8.0
    assert judge(journal, [], {}, 1.0).wrong == []
    frozen = [Window(59.0, 70.0)]
    assert lateness_s(journal, frozen) == 50.1 - 50.0
    assert len(judge(journal, frozen, {}, 1.0).wrong) == 1
