"""What the leader lends, and what it calls back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.coordination.leader.lending import Loans
from forebay.coordination.protocol.messages import Lend, Recall
from forebay.core import NodeChanged, Options

GPU = NodeChanged("gpu", slots=8, models=("llama",))
OTHERS = ["b", "c", "d"]


def balance(loans: Loans, busy: int = 0, now_s: float = 0.0) -> dict[str, Lend | Recall]:
    return dict(loans.balance(GPU, busy, OTHERS, 5.0, now_s))


def test_what_is_idle_is_shared_out_and_one_part_stays_with_the_leader() -> None:
    loans = Loans(Options(), lambda _: True)
    assert balance(loans) == {name: Lend("gpu", 2) for name in OTHERS}
    assert balance(loans) == {}
    assert loans.idle_of("gpu") == 6


@given(st.integers(0, 10), st.lists(st.sampled_from(OTHERS), max_size=6))
def test_no_more_is_lent_than_is_idle(busy: int, users: list[str]) -> None:
    loans = Loans(Options(), lambda _: True)
    balance(loans, busy)
    for user in users:
        loans.use(user, "gpu", 0.0)
    balance(loans, busy + len(users))
    assert busy >= GPU.slots or busy + loans.idle_of("gpu") <= GPU.slots


def test_the_last_ones_get_what_is_left() -> None:
    loans = Loans(Options(), lambda _: True)
    loans.lend("b", "gpu", 5, 0.0)
    assert balance(loans) == {"c": Lend("gpu", 2), "d": Lend("gpu", 1)}
    assert loans.idle_of("gpu") == GPU.slots


def test_what_has_not_been_used_for_long_is_called_back_beyond_its_part() -> None:
    loans = Loans(Options(), lambda _: True)
    loans.lend("b", "gpu", 8, 0.0)
    assert balance(loans, now_s=5.0) == {}
    assert balance(loans, now_s=5.1) == {"b": Recall("gpu", 2)}
    loans.use("b", "gpu", 5.2)
    assert balance(loans, busy=1, now_s=5.3) == {}


def test_a_node_is_called_back_once_and_nothing_stays_there_meanwhile() -> None:
    loans = Loans(Options(), lambda _: True)
    loans.lend("b", "gpu", 1, 0.0)
    loans.lend("c", "other", 1, 0.0)
    assert loans.recall(["gpu"]) == [("b", Recall("gpu"))]
    assert loans.recall(["gpu"]) == []
    assert not loans.may_extend("b", "gpu")
    assert loans.may_extend("b", "other")
    assert loans.give_back("b", "gpu", 1) == 1
    assert loans.may_extend("b", "gpu")


def test_no_more_comes_back_than_was_lent() -> None:
    loans = Loans(Options(), lambda _: True)
    loans.lend("b", "gpu", 2, 0.0)
    assert loans.give_back("b", "gpu", 5) == 2
    assert loans.give_back("b", "gpu", 1) == 0
    assert loans.lent_to("b") == 0


def test_all_of_a_lost_replica_comes_back() -> None:
    loans = Loans(Options(), lambda _: True)
    loans.lend("b", "gpu", 2, 0.0)
    loans.lend("b", "other", 1, 0.0)
    loans.lend("c", "gpu", 1, 0.0)
    assert loans.forget("b") == {"gpu": 2, "other": 1}
    assert loans.forget("b") == {}
    assert loans.idle_of("gpu") == 1


def test_it_is_too_much_when_a_node_shrinks_drains_or_nothing_may_wait() -> None:
    loans = Loans(Options(), lambda _: True)
    loans.lend("b", "gpu", 6, 0.0)
    loans.use("b", "gpu", 0.0)
    smaller = NodeChanged("gpu", slots=5, models=("llama",))
    assert not loans.must_recall(GPU, busy=3)
    assert loans.must_recall(smaller, busy=1)
    assert loans.must_recall(NodeChanged("gpu", 8, ("llama",), state="draining"), busy=1)
    for options in (Options(enabled=False), Options(max_size=0), Options(wait_s_max=0.0)):
        loans.change_options(options)
        assert loans.must_recall(GPU, busy=1)
