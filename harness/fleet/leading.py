"""Who leads a fleet, as the gateways' logs say; only to aim faults at, never to judge by."""

import json

from harness.fleet.fleet import Fleet, Gateway


def leader_of(fleet: Fleet) -> Gateway | None:
    """Return the gateway that was the last to say that it leads; None when nobody has."""
    epochs = [(_last_epoch(gateway), gateway) for gateway in fleet.gateways]
    epoch, gateway = max(epochs, key=lambda pair: pair[0])
    return gateway if epoch else None


def _last_epoch(gateway: Gateway) -> int:
    """Return the last epoch in which a gateway led, as far as it has said since it was started."""
    for line in reversed(gateway.text.splitlines()):
        if '"message":"became leader"' in line:
            return int(json.loads(line)["epoch"])
    return 0
