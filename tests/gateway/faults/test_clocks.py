"""Row 44: the time of day is set an hour ahead and back; limits are counted in time that passes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from forebay.testing import FakeClock

from ..sessions.session_steps import follow, new_session, prompt

if TYPE_CHECKING:
    from datetime import datetime

    from .conftest import FaultRig

HOUR_S = 3600.0


class SteppingClock(FakeClock):
    """A clock whose time of day somebody sets."""

    ahead_s = 0.0

    def utc(self) -> datetime:
        return super().utc() + timedelta(seconds=self.ahead_s)


@pytest.fixture
def clock(rig: FaultRig) -> SteppingClock:
    """The clock of the gateway that the test starts."""
    rig.clock = clock = SteppingClock(1000.0)
    return clock


async def test_fault_44_a_clock_that_is_set_ends_no_wait_and_no_run(
    rig: FaultRig, clock: SteppingClock
) -> None:
    node = await rig.node()
    await rig.start(node)
    runner = await rig.ask()
    call = await node.next_call()
    waiter = await rig.ask()
    await rig.wait_until("waiting", 1)
    for step_s in (HOUR_S, -2 * HOUR_S, HOUR_S):
        clock.ahead_s += step_s
        clock.advance(1.0)
        await rig.wait_until("waiting", 1)
    clock.ahead_s -= HOUR_S
    clock.advance(56.9)
    await rig.wait_until("waiting", 1)
    clock.advance(0.1)  # and not an hour later
    reply = await waiter.reply()
    assert (reply.status, reply.json["error"]["code"]) == (504, "queue_timeout")
    assert reply.json["error"]["waited_seconds"] == 60.0
    clock.ahead_s += 2 * HOUR_S
    clock.advance(539.9)
    await rig.wait_until("processing", 1)
    assert not call.peer_gone
    clock.advance(0.1)
    assert (await runner.reply()).json["error"]["code"] == "run_timeout"
    await call.gone()


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
async def test_fault_44_a_clock_that_is_set_moves_no_deadline_of_a_prompt(
    rig: FaultRig, clock: SteppingClock, step_s: float
) -> None:
    node = await rig.node()
    await rig.start(node)
    session = await new_session(rig)
    events = await follow(rig, session)
    late = await prompt(rig, session, "late", deadlineMs=5000)
    call = await node.next_call()
    clock.ahead_s = step_s
    clock.advance(4.9)
    await rig.wait_until("processing", 1)
    assert not call.peer_gone
    clock.advance(0.1)
    assert (await events.end_of(late))["error"]["code"] == "deadline_exceeded"
    await call.gone()
