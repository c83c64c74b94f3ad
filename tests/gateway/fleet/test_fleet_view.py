"""What a gateway of a fleet shows: the others, how old its figures are, and whether to ask here.

The fleet is a fake that says what it is told; the gateway, its queue and its sockets are real.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from forebay.core import Observed
from forebay.dashboard.feed import INTERVAL_S
from forebay.dashboard.observer import TIMEOUT_S
from harness.shown_fleet import ME, ShownFleet, replica

from ..routes.test_dashboard import LIMIT_S, look
from ..test_metrics import Scrape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from forebay.core import Event

    from ..conftest import Rig

PLAIN, ADMIN = "a-key-of-the-test", "an-admin-key-of-the-test"
KEYS = [
    {"name": name, "key_sha256": hashlib.sha256(key.encode()).hexdigest(), "admin": name == "boss"}
    for name, key in (("team", PLAIN), ("boss", ADMIN))
]


class LateAnswers:
    """Holds back what the gateway asks the core about itself, as a leader far away would.

    Nor does the watch look, unless it should: what is asked here is what the test asks.
    """

    def __init__(self, rig: Rig, *, watched: bool = False) -> None:
        if not watched:
            rig.gateway.parts.dashboard_feed.stop()
        self._relay = rig.gateway.parts.relay
        self._post = self._relay.post
        self._relay.post = self._hold
        self.held: list[Event] = []
        self._asked = asyncio.Event()

    def _hold(self, event: Event) -> None:
        if isinstance(event, Observed):
            self.held.append(event)
            self._asked.set()
        else:
            self._post(event)

    async def asked(self) -> None:
        """Wait until something has been asked."""
        async with asyncio.timeout(LIMIT_S):
            await self._asked.wait()
        self._asked.clear()

    def answer(self) -> None:
        """Let the core answer all that was asked."""
        held, self.held = self.held, []
        for event in held:
            self._post(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._relay.post = self._post
        self.answer()


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=LIMIT_S, trust_env=False) as client:
        yield client


async def start(rig: Rig, fleet: ShownFleet, **settings: Any) -> None:
    await rig.start(await rig.node(), **settings)
    rig.gateway.parts.membership.fleet = fleet


async def metrics(rig: Rig) -> Scrape:
    return Scrape((await rig.get("/metrics")).body.decode())


# -- /v1/queue


async def test_the_queue_of_a_fleet_names_its_gateways_and_how_they_are(rig: Rig) -> None:
    lost = replica("3", state="lost", heard_s=12.34, version="0.5.0", settings="other")
    await start(rig, ShownFleet(lost, replica("2", lent=4)))
    fleet = (await rig.queue())["fleet"]
    assert (fleet["mode"], fleet["epoch"], fleet["me"]) == ("coordinated", 7, ME)
    assert fleet["counted_seconds_ago"] == 0.0
    here, second, third = fleet["replicas"]  # who is lost comes last
    assert (here["name"], here["state"], here["waiting"]) == (ME, "leading", 3)
    assert (second["state"], second["lent"], second["same_settings"]) == ("following", 4, True)
    assert third == {
        "name": "3", "state": "lost", "version": "0.5.0", "waiting": 1, "running": 2, "lent": 1,
        "heard_seconds": 12.3, "same_settings": False, "address": "http://10.0.0.3:7800",
    }  # fmt: skip


async def test_only_an_admin_learns_where_the_gateways_are(rig: Rig) -> None:
    await start(rig, ShownFleet(replica("2")), keys=KEYS)
    for key, told in ((PLAIN, False), (ADMIN, True)):
        rig.headers = {"authorization": f"Bearer {key}"}
        replicas = (await rig.queue())["fleet"]["replicas"]
        assert len(replicas) == 2
        assert all(("address" in one) is told for one in replicas)


async def test_a_gateway_on_its_own_has_no_fleet_to_show(rig: Rig, http: httpx.AsyncClient) -> None:
    await rig.start(await rig.node())
    assert "fleet" not in await rig.queue()
    looker = await look(rig, http)
    await looker.next()
    assert "fleet" not in await looker.snapshot()
    assert "forebay_replicas" not in (await metrics(rig)).text
    assert (await rig.get("/ready")).json == {"status": "ready"}


# -- answers that come later, or not


async def test_a_picture_that_comes_late_is_waited_for_and_shared(rig: Rig) -> None:
    await start(rig, ShownFleet())
    with LateAnswers(rig) as late:
        first = asyncio.ensure_future(rig.queue())
        await late.asked()
        second = asyncio.ensure_future(rig.gateway.parts.queue_observer.snapshot())
        await asyncio.sleep(0)
        assert len(late.held) == 1
        late.answer()
        assert (await first)["fleet"]["counted_seconds_ago"] == 0.0
        assert (await second).waiting == 0


async def test_after_a_second_the_last_picture_is_shown_with_its_age(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    rig.gateway.parts.membership.fleet = ShownFleet()
    _, call = await rig.run(node)
    assert (await rig.queue())["processing"] == 1
    with LateAnswers(rig) as late:
        rig.clock.advance(3.0 - TIMEOUT_S)
        for _ in range(3):  # nor do the questions pile up
            asked = asyncio.ensure_future(rig.queue())
            await late.asked()
            rig.clock.advance(TIMEOUT_S)
            seen = await asked
            assert seen["processing"] == 1
        assert seen["fleet"]["counted_seconds_ago"] == 5.0
        assert len(rig.gateway.parts.relay._watchers) == 1
    await call.answer({})
    await rig.wait_until("processing", 0)


async def test_where_nothing_was_ever_answered_the_figures_are_zero_and_say_so(rig: Rig) -> None:
    await start(rig, ShownFleet(mode="seeking", epoch=0), queue={"max_size": 7})
    rig.gateway.parts.queue_observer._last = None
    with LateAnswers(rig) as late:
        asked = asyncio.ensure_future(rig.queue())
        await late.asked()
        rig.clock.advance(TIMEOUT_S)
        seen = await asked
        assert (seen["waiting"], seen["max_size"]) == (0, 7)
        assert seen["fleet"]["counted_seconds_ago"] is None


async def test_the_page_gets_its_first_picture_as_soon_as_it_is_answered(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    await start(rig, ShownFleet())
    with LateAnswers(rig, watched=True) as late:
        looker = await look(rig, http)
        assert (await looker.next())[0] == "hello"
        await late.asked()
        late.answer()
        assert (await looker.snapshot())["fleet"]["counted_seconds_ago"] == 0.0
        rig.clock.advance(INTERVAL_S)
        rig.clock.advance(TIMEOUT_S)  # and then an old one, rather than none
        assert (await looker.snapshot())["fleet"]["counted_seconds_ago"] > 0


# -- readiness


@pytest.mark.parametrize("mode", ["coordinated", "seeking", "alone"])
async def test_a_gateway_that_still_works_is_ready_and_says_how(rig: Rig, mode: str) -> None:
    await start(rig, ShownFleet(mode=mode))
    reply = await rig.get("/ready")
    assert (reply.status, reply.json) == (200, {"status": "ready", "mode": mode})


async def test_a_gateway_that_is_cut_off_is_alive_and_not_ready(rig: Rig) -> None:
    await start(rig, ShownFleet(mode="cut_off"))
    with LateAnswers(rig):  # nobody answers either
        reply = await rig.get("/ready")
        assert (reply.status, reply.json["error"]["code"]) == (503, "coordination_lost")
        assert (await rig.get("/health")).status == 200
    assert rig.gateway.parts.readiness.problem() is not None


# -- metrics


async def test_the_metrics_count_the_gateways_and_name_the_mode(rig: Rig) -> None:
    others = [replica("2", settings="other"), replica("3", version="0.5.0"),
              replica("4", state="lost", settings="old")]  # fmt: skip
    await start(rig, ShownFleet(*others, failovers=2, outages=1))
    seen = await metrics(rig)
    states = {state: seen.value("forebay_replicas", state=state) for state in
              ("leading", "following", "lost")}  # fmt: skip
    assert states == {"leading": 1, "following": 2, "lost": 1}
    assert seen.value("forebay_replicas_differing", what="settings") == 1
    assert seen.value("forebay_replicas_differing", what="version") == 1
    assert seen.value("forebay_fleet_mode", mode="coordinated") == 1
    assert seen.value("forebay_fleet_mode", mode="cut_off") == 0
    assert seen.value("forebay_fleet_epoch") == 7
    assert seen.value("forebay_fleet_failovers_total") == 2
    assert seen.value("forebay_store_outages_total") == 1
    assert seen.value("forebay_fleet_counted_seconds_ago") == 0


async def test_without_a_leader_its_totals_are_left_out_and_do_not_seem_to_fall(rig: Rig) -> None:
    fleet = ShownFleet()
    await start(rig, fleet)
    assert (await metrics(rig)).value("forebay_queue_enqueued_total") == 0
    fleet.change(mode="alone")
    seen = await metrics(rig)
    assert seen.families["forebay_queue_enqueued"].samples == []
    assert seen.families["forebay_model_swaps"].samples == []
    assert seen.value("forebay_queue_max_size") == 100


# -- the page


async def test_the_picture_shows_the_fleet_and_what_is_wrong_with_it(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    fleet = ShownFleet(replica("2", state="lost", heard_s=40.0))
    await start(rig, fleet)
    looker = await look(rig, http)
    await looker.next()
    seen = await looker.snapshot()
    assert [one["state"] for one in seen["fleet"]["replicas"]] == ["leading", "lost"]
    assert "address" not in seen["fleet"]["replicas"][0]
    assert [one["code"] for one in seen["troubles"]] == ["replica_lost"]
    fleet.change(mode="alone")
    rig.clock.advance(INTERVAL_S)
    await looker.snapshot()
    rig.clock.advance(INTERVAL_S)
    seen = await looker.snapshot()
    assert seen["ready"]
    assert seen["fleet"]["mode_seconds"] == INTERVAL_S
    assert [one["code"] for one in seen["troubles"]] == ["store_lost"]
