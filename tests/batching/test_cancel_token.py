"""The token by itself: told once, never missed, from any thread."""

import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from forebay.batching import CancelToken

from .threads import Running, run_together


@pytest.fixture
def _many_switches() -> Iterator[None]:
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual_s)


def test_cancel_calls_every_callback_once_newest_first() -> None:
    token = CancelToken()
    called: list[str] = []
    token.register(lambda: called.append("old"))
    token.register(lambda: called.append("new"))
    assert (token.cancelled, token.registered) == (False, 2)
    token.cancel()
    token.cancel()
    assert (token.cancelled, token.registered) == (True, 0)
    assert called == ["new", "old"]


def test_registering_on_a_cancelled_token_calls_at_once_and_leaves_nothing() -> None:
    token = CancelToken()
    token.cancel()
    called: list[str] = []
    registration = token.register(lambda: called.append("at once"))
    assert called == ["at once"]
    assert token.registered == 0
    assert not token.unregister(registration)


def test_an_unregistered_callback_is_not_called() -> None:
    token = CancelToken()
    called: list[str] = []
    registration = token.register(lambda: called.append("no"))
    assert token.registered == 1
    assert token.unregister(registration)
    assert not token.unregister(registration)
    token.cancel()
    assert called == []


def test_the_same_callback_may_be_registered_twice() -> None:
    token = CancelToken()
    called: list[int] = []
    callback = lambda: called.append(1)  # noqa: E731  # one object, registered twice
    first = token.register(callback)
    token.register(callback)
    token.unregister(first)
    token.cancel()
    assert called == [1]


def test_the_flag_is_up_before_any_callback_runs() -> None:
    token = CancelToken()
    seen: list[bool] = []
    token.register(lambda: seen.append(token.cancelled))
    token.cancel()
    assert seen == [True]


def test_a_callback_may_cancel_register_and_unregister() -> None:
    token = CancelToken()
    called: list[str] = []
    doomed = token.register(lambda: called.append("unregistered by another"))

    def meddle() -> None:
        token.unregister(doomed)
        token.register(lambda: called.append("registered inside"))
        token.cancel()

    token.register(meddle)
    Running(token.cancel).result()
    assert called == ["registered inside"]


def test_a_failing_callback_does_not_keep_the_others_from_hearing() -> None:
    token = CancelToken()
    called: list[str] = []
    token.register(lambda: called.append("heard"))
    token.register(lambda: 1 / 0)
    token.register(lambda: called.append("heard too"))
    with pytest.raises(ExceptionGroup) as caught:
        token.cancel()
    assert called == ["heard too", "heard"]
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]
    assert token.registered == 0


class CancelsFirst(dict[object, Callable[[], object]]):
    """The dict of a token that is cancelled in the instant before a callback is put in."""

    def __init__(self, token: CancelToken) -> None:
        super().__init__()
        self.token = token

    def __setitem__(self, registration: object, callback: Callable[[], object]) -> None:
        self.token.cancel()
        super().__setitem__(registration, callback)


def test_a_cancel_in_the_instant_of_registering_is_not_lost() -> None:
    token = CancelToken()
    token._callbacks = CancelsFirst(token)
    called: list[int] = []
    token.register(lambda: called.append(1))
    assert called == [1]
    assert token.registered == 0


@pytest.mark.usefixtures("_many_switches")
def test_a_cancel_that_races_with_registering_is_never_lost_nor_doubled() -> None:
    for _ in range(300):
        token = CancelToken()
        called: list[int] = []
        register = partial(token.register, partial(called.append, 1))
        calls: list[Callable[[], object]] = [register, register, token.cancel, token.cancel]
        run_together(calls)
        assert called == [1, 1]
        assert token.registered == 0


@pytest.mark.usefixtures("_many_switches")
def test_a_cancel_that_races_with_unregistering_calls_or_does_not_but_agrees() -> None:
    for _ in range(300):
        token = CancelToken()
        called: list[int] = []
        registration = token.register(partial(called.append, 1))
        calls: list[Callable[[], object]] = [
            partial(token.unregister, registration),
            token.cancel,
        ]
        taken_back, _ = run_together(calls)
        assert called == ([] if taken_back else [1])
