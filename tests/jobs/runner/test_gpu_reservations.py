"""GPU memory is counted by GPU: runners on one machine share it, those on others do not."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from forebay.jobs.runner.gpu_memory import GpuMemory, GpuWatch
from forebay.jobs.runner.gpu_reservations import GpuReservations

from ..script import LIMIT_S, Script, idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.store.job_store import JobStore


def card(uuid: str = "GPU-a") -> list[GpuMemory]:
    return [GpuMemory(0, 8.0, uuid=uuid)]


def two_runners(script: Callable[..., Script], url: str, *options: dict[str, Any]) -> list[Script]:
    """The first one runs `letter`; the second has `report` and something that needs nothing."""
    first, second = (script(url, **given) for given in options)
    first.add("letter", vram_gb=5.0, held=True)
    second.add("report", vram_gb=5.0, held=True)
    second.add("bell", vram_gb=0.0)
    first.submit("letter", 1)
    first.runner.start()
    first.begun("letter")
    second.runner.start()
    second.submit("report", 1)
    second.submit("bell", 1)
    second.begun("bell")  # so its scheduler has looked
    return [first, second]


def test_two_runners_on_one_gpu_share_it(script: Callable[..., Script], postgres_url: str) -> None:
    first, second = two_runners(script, postgres_url, {"gpus": card}, {"gpus": card})
    idle_bell = second.runner
    assert not second.has_begun("report")
    assert idle_bell.available_vram_gb == 3.0
    first.end()
    second.begun("report")  # told, not polled: polls are too rare here
    assert second.runner.available_vram_gb == 8.0


def test_two_runners_on_two_gpus_do_not(script: Callable[..., Script], postgres_url: str) -> None:
    other = {"gpus": lambda: card("GPU-b")}
    _, second = two_runners(script, postgres_url, {"gpus": card}, other)
    second.begun("report")


@pytest.mark.parametrize(("host", "shared"), [("here", True), ("elsewhere", False)])
def test_a_size_from_the_settings_is_that_of_the_host(
    script: Callable[..., Script],
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    shared: bool,
) -> None:
    names = iter(["here", "here", host, host])
    monkeypatch.setattr(socket, "gethostname", lambda: next(names))
    fixed = {"available_vram_gb": 8.0}
    first, second = two_runners(script, postgres_url, fixed, fixed)
    if shared:
        assert not second.has_begun("report")
        first.end()
    second.begun("report")


def test_a_type_larger_than_the_gpu_waits_for_everyone_and_everyone_for_it(
    script: Callable[..., Script], postgres_url: str
) -> None:
    first, second = (script(postgres_url, gpus=card) for _ in range(2))
    first.add("huge", vram_gb=80.0, held=True)
    second.add("letter", vram_gb=1.0, held=True)
    second.submit("letter", 1)
    second.runner.start()
    second.begun("letter")
    first.add("bell", vram_gb=0.0)
    first.runner.start()
    first.submit("huge", 1)
    first.submit("bell", 1)
    first.begun("bell")
    assert not first.has_begun("huge")
    second.let("letter")
    first.begun("huge")
    second.add("bell2", vram_gb=0.0)
    second.submit("letter", 2)
    second.submit("bell2", 1)
    second.begun("bell2")
    assert not second.has_begun("letter")
    first.let("huge")
    second.begun("letter")
    second.end()
    idle(second.runner)


def test_what_does_not_fit_beside_others_does_not_keep_out_what_does(
    script: Callable[..., Script], postgres_url: str
) -> None:
    first, second = (script(postgres_url, gpus=card) for _ in range(2))
    first.add("letter", vram_gb=5.0, held=True)
    first.submit("letter", 1)
    first.runner.start()
    first.begun("letter")
    second.add("report", vram_gb=5.0, held=True)
    second.add("small", vram_gb=3.0, held=True)
    second.submit("report", 1, 2, 3)
    second.submit("small", 1)
    second.runner.start()
    second.begun("small")
    assert second.runner.reserved_vram_gb == 3.0
    assert not second.has_begun("report")


# -- the rows themselves


def room(store: JobStore, worker: str, lease_s: float = 60.0) -> GpuReservations:
    watch = GpuWatch(None, card)
    watch.first()
    return GpuReservations(store, watch, worker, lease_s)


def sql(store: JobStore, statement: str) -> None:
    store.database.write(lambda c: c.exec_driver_sql(statement).rowcount).result(LIMIT_S)


def held(store: JobStore) -> dict[str, float]:
    return room(store, "nobody").read().result(LIMIT_S)[1]


def test_of_many_who_take_the_last_room_at_once_one_gets_it(
    open_store: Callable[[str], JobStore], postgres_url: str
) -> None:
    rooms = [room(open_store(postgres_url), f"w{n}") for n in range(6)]
    for _ in range(5):
        with ThreadPoolExecutor(len(rooms)) as pool:
            taken = list(pool.map(lambda one: one.reserve("letter", 5.0, 0), rooms))
        assert sum(taken) == 1
        assert rooms[taken.index(True)].reserve("letter", 5.0, 0), "it has it already"
        for one in rooms:
            one.release("letter")


def test_what_a_dead_runner_held_is_free_when_its_lease_has_ended(
    open_store: Callable[[str], JobStore], postgres_url: str
) -> None:
    store = open_store(postgres_url)
    assert room(store, "dead").reserve("letter", 5.0, 0)
    live = room(store, "live")
    assert not live.reserve("letter", 5.0, 0)
    assert live.reserve("small", 3.0, 0)
    sql(store, "UPDATE gpu_holds SET until = until - 3600 WHERE worker = 'dead'")
    assert live.reserve("letter", 5.0, 0)
    assert held(store) == {"GPU-a": 8.0}


def test_a_runner_that_slept_past_its_lease_asks_again_before_its_next_job(
    open_store: Callable[[str], JobStore], postgres_url: str
) -> None:
    store = open_store(postgres_url)
    sleeper, other = room(store, "sleeper"), room(store, "other")
    assert sleeper.reserve("letter", 5.0, 0)
    sql(store, "UPDATE gpu_holds SET until = until - 3600")
    assert other.reserve("report", 5.0, 0)
    sleeper.renew()
    sql(store, "SELECT 1")  # behind the beat, in the same line
    assert not sleeper.reserve("letter", 5.0, 0)
    other.release("report")
    assert sleeper.reserve("letter", 5.0, 0)


def test_beats_keep_what_is_held(open_store: Callable[[str], JobStore], postgres_url: str) -> None:
    store = open_store(postgres_url)
    one = room(store, "one")
    assert one.reserve("letter", 5.0, 0)
    sql(store, "UPDATE gpu_holds SET until = until - 59")
    one.renew()
    sql(store, "SELECT 1")
    found = store.database.read(
        lambda c: c.exec_driver_sql(
            "SELECT until - extract(epoch from now()) FROM gpu_holds"
        ).scalar_one()
    ).result(LIMIT_S)
    assert found > 30
    assert one.reserve("letter", 5.0, 0)


def test_beats_do_not_keep_what_could_not_be_given_back(
    open_store: Callable[[str], JobStore], postgres_url: str
) -> None:
    store = open_store(postgres_url)
    one, other = room(store, "one"), room(store, "other")
    assert one.reserve("letter", 5.0, 0)
    assert one.reserve("small", 3.0, 0)
    sql(store, "ALTER TABLE gpu_holds RENAME TO gpu_holds_away")
    one.release("small")  # fails
    sql(store, "ALTER TABLE gpu_holds_away RENAME TO gpu_holds")
    assert not other.reserve("report", 3.0, 0)
    sql(store, "UPDATE gpu_holds SET until = until - 3600 WHERE task_type = 'small'")
    one.renew()
    sql(store, "SELECT 1")  # behind the beat, in the same line
    assert other.reserve("report", 3.0, 0)


def test_a_database_that_is_away_gives_no_room(
    open_store: Callable[[str], JobStore], postgres_url: str
) -> None:
    store = open_store(postgres_url)
    one = room(store, "one")
    store.database.close()
    assert not one.reserve("letter", 5.0, 0)
    assert one.reserve("bell", 0.0, None)
