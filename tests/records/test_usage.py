"""The book of usage: sums, and bounds."""

from __future__ import annotations

from forebay.records.usage import OTHER, ROWS_MAX, USERS_MAX, UsageBook, UsageCounts, UsageKey

ONE = UsageCounts(1, 2, 3)


def row(user: str = "ann", hour: int = 7, key: str = "k", model: str = "m") -> UsageKey:
    return UsageKey(hour, key, user, model)


def test_what_is_the_same_is_summed_up_and_taken_once() -> None:
    book = UsageBook()
    for key in (row(), row("bob"), row()):
        book.add(key, ONE)
    assert book.take() == [(row(), (2, 4, 6)), (row("bob"), ONE)]
    assert not book
    assert book.take() == []


def test_what_could_not_be_written_is_added_to_the_next() -> None:
    book = UsageBook()
    book.add(row(), ONE)
    taken = book.take()
    book.add(row(), ONE)
    book.put_back(taken)
    assert book.take() == [(row(), (2, 4, 6))]


def test_what_is_put_back_is_summed_up_whichever_is_more() -> None:
    few, many = [(row(), ONE)], [(row(), ONE), (row("bob"), ONE)]
    for first, then in ((few, many), (many, few)):
        book = UsageBook()
        book.put_back(first)
        book.put_back(then)
        assert sorted(book.take()) == [(row(), (2, 4, 6)), (row("bob"), ONE)]


def test_beyond_so_many_users_in_an_hour_the_rest_is_one() -> None:
    book = UsageBook()
    for number in range(USERS_MAX + 5):
        book.add(row(f"u{number}"), ONE)
    book.add(row("u3"), ONE)
    rows = dict(book.take())
    assert len(rows) == USERS_MAX + 1
    assert rows[row(OTHER)] == (5, 10, 15)
    assert rows[row("u3")] == (2, 4, 6)
    book.add(row("new", hour=8), ONE)
    assert book.take() == [(row("new", hour=8), ONE)]


def test_a_book_that_nobody_takes_stays_bounded_and_counts_what_is_lost() -> None:
    book = UsageBook()
    for number in range(2 * ROWS_MAX + 7):
        book.add(row(hour=number, model=f"m{number}"), ONE)
    assert len(book.take()) == 2 * ROWS_MAX
    assert book.lost == 7
