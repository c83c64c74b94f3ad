"""What the leader hears together of short requests on lent slots."""

from forebay.coordination.follower.loan_reports import LoanReports
from forebay.core import Arrived, Finished, Route


def test_requests_that_ended_alike_are_told_of_by_their_number_and_their_means() -> None:
    reports = LoanReports(lambda arrival: arrival)
    for name in ("a", "b", "c"):
        reports.start(Arrived(name, "llama", user="ann"), Route(name, "gpu"), 0.0)
    reports.end(Finished("a", True, 10, 30, first_byte_s=0.1, ran_s=0.4), 1.0)
    reports.end(Finished("b", True, 20, 50, first_byte_s=0.3, ran_s=0.6), 1.0)
    reports.end(Finished("c"), 2.0)  # of which nothing is known: it ran by the clock
    (told,) = reports.take_ended("b-1")
    event = told.event
    assert (event.count, event.most) == (3, 3)
    assert (event.prompt_tokens, event.output_tokens) == (15, 40)
    assert event.first_byte_s == 0.2
    assert event.ran_s is not None
    assert round(event.ran_s, 9) == 1.0


def test_users_are_told_of_apart() -> None:
    reports = LoanReports(lambda arrival: arrival)
    for name, user in (("a", "ann"), ("b", "bob")):
        reports.start(Arrived(name, "llama", user=user), Route(name, "gpu"), 0.0)
        reports.end(Finished(name), 1.0)
    assert [one.arrival.user for one in reports.take_ended("b-1")] == ["ann", "bob"]
