"""What goes wrong, when it does, and what the checker must know of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from harness.fleet_simulation.checker import SETTLED
from harness.fleet_simulation.plans import STORE_FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.fleet_simulation.actors import Gateway
    from harness.fleet_simulation.engine import FleetSimulation
    from harness.fleet_simulation.plans import Fault

RESTART_S = 1.0
LOST_S = 1.0
"""What a failover loses."""


class Faults:
    """Lets faults begin and end."""

    def __init__(self, simulation: FleetSimulation) -> None:
        self._simulation = simulation
        self._world = simulation.world
        self._store_faults = 0
        self._outs: dict[str, int] = {}  # faults that keep a member out of touch
        self.over_s = 0.0
        """When the last fault was over."""

    def start(self) -> None:
        for fault in self._simulation.plan.faults:
            self._world.call_at(fault.at_s, partial(self._begin, fault))
            if fault.kind == "failover":
                self._world.call_at(max(0.0, fault.at_s - LOST_S), self._simulation.valkey.keep)

    def note_newcomer(self, gateway: Gateway) -> None:
        """Know that a gateway has started; with the store away it is out of touch as well."""
        gateway.settled_s = self._world.monotonic_s()
        for _ in range(self._store_faults):
            self._take_out(gateway)

    def _begin(self, fault: Fault) -> None:
        simulation = self._simulation
        simulation.checker.counts[f"fault: {fault.kind}"] += 1
        if fault.kind in STORE_FAULTS:
            self._note(f"{fault.kind} for {fault.for_s:.2f} s")
            self._begin_with_store(fault)
            return
        gateway = self._victim(fault)
        if gateway is None:
            return
        leads = gateway.replica.leads
        self._note(
            f"{fault.kind} of {gateway.name}{' (leads)' if leads else ''} for {fault.for_s:.2f} s"
        )
        if leads:
            simulation.checker.open_window()
        if fault.kind == "kill":
            self._kill(gateway, fault, leads)
        elif fault.kind == "retire":
            simulation.retire(gateway, lambda: self._retired(gateway, fault, leads))
        else:
            self._take_out(gateway)
            self._break(gateway, fault)
            self._after(fault.for_s, lambda: self._mend(gateway, fault, leads))

    def _victim(self, fault: Fault) -> Gateway | None:
        able = [
            one
            for one in self._simulation.gateways.values()
            if one.alive and one.ready and not one.clock.frozen and not one.line.cut
        ]
        if fault.replica < 0:
            able = [one for one in able if one.replica.leads] or able[:1]
            return able[0] if able else None
        wanted = [one for one in able if int(one.name, 16) == fault.replica]
        return wanted[0] if wanted else None

    # -- replicas

    def _kill(self, gateway: Gateway, fault: Fault, led: bool) -> None:
        gateway.die(stops=fault.for_s < self._simulation.plan.lease_s)
        self._simulation.checker.lost_one()
        self._outs.pop(gateway.member, None)
        self._after(fault.for_s, lambda: self._restart(gateway, led))

    def _retired(self, gateway: Gateway, fault: Fault, led: bool) -> None:
        self._note(f"{gateway.name} has left")
        self._simulation.checker.lost_one()
        self._after(fault.for_s, lambda: self._restart(gateway, led))

    def _restart(self, gateway: Gateway, led: bool) -> None:
        self._note(f"{gateway.name} restarts")
        self._simulation.add_gateway(gateway.name)
        self._close_window_if(led)
        self._over()

    def _break(self, gateway: Gateway, fault: Fault) -> None:
        if fault.kind == "freeze":
            gateway.clock.frozen = True
        else:
            gateway.line.cut = True
            gateway.isolated = fault.kind == "isolate"

    def _mend(self, gateway: Gateway, fault: Fault, led: bool) -> None:
        self._note(f"{fault.kind} of {gateway.name} is over")
        self._close_window_if(led)
        self._over()
        if not gateway.alive:
            return
        if fault.kind == "freeze":
            gateway.clock.thaw()
        else:
            gateway.line.cut = gateway.isolated = False
        self._take_in(gateway)

    def _take_out(self, gateway: Gateway) -> None:
        """Know that a gateway is out of touch."""
        outs = self._outs.get(gateway.member, 0)
        self._outs[gateway.member] = outs + 1
        gateway.settled_s = float("inf")
        if not outs:
            gateway.out_since_s = self._world.monotonic_s()

    def _take_in(self, gateway: Gateway) -> None:
        outs = self._outs[gateway.member] = self._outs.get(gateway.member, 0) - 1
        if not outs:
            gateway.out_since_s = None
            settles_s = SETTLED * self._simulation.plan.lease_s
            gateway.settled_s = self._world.monotonic_s() + settles_s

    # -- the store

    def _begin_with_store(self, fault: Fault) -> None:
        valkey, checker = self._simulation.valkey, self._simulation.checker
        checker.open_window()
        self._store_faults += 1
        for gateway in self._simulation.gateways.values():
            if gateway.alive:
                self._take_out(gateway)
        match fault.kind:
            case "store_paused":
                valkey.pause()
            case "store_slow":
                valkey.slow = True
            case "failover":
                valkey.fail_over()
            case _:
                valkey.go_down(empty=fault.kind == "store_emptied")
        self._after(fault.for_s, lambda: self._end_with_store(fault))

    def _end_with_store(self, fault: Fault) -> None:
        self._note(f"{fault.kind} is over")
        valkey = self._simulation.valkey
        self._store_faults -= 1
        for gateway in self._simulation.gateways.values():
            if gateway.alive:
                self._take_in(gateway)
        if not self._store_faults:
            valkey.come_up()
            valkey.resume()
            valkey.slow = False
        self._close_window_if(True)
        self._over()

    # -- both

    def _close_window_if(self, opened: bool) -> None:
        if opened:
            self._simulation.checker.close_window()

    def _over(self) -> None:
        self.over_s = self._world.monotonic_s()

    def _after(self, after_s: float, callback: Callable[[], None]) -> None:
        self._world.call_at(self._world.monotonic_s() + after_s, callback)

    def _note(self, what: str) -> None:
        self._simulation.checker.note(f"*** {what}")
