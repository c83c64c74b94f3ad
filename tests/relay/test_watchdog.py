"""What counts as an orphan: a table of leases and claims."""

from __future__ import annotations

import pytest

from forebay.core import Lease
from forebay.relay.watchdog import Claim, find_orphans

ALIVE = Claim("gpu1", alive=True)
DEAD = Claim("gpu1", alive=False)
LEASE = Lease("a", "gpu1")


@pytest.mark.parametrize(
    ("leases", "claims", "reserved", "orphans"),
    [
        ([], {}, set(), []),
        ([LEASE], {"a": ALIVE}, set(), []),
        ([LEASE], {}, {"a"}, []),
        ([LEASE], {}, set(), ["a lease without a request: a on gpu1"]),
        ([LEASE], {"a": DEAD}, set(), ["a lease without a request: a on gpu1"]),
        ([], {"a": ALIVE}, set(), ["a request without a lease: a on gpu1"]),
        ([], {"a": DEAD}, set(), ["a request without a lease: a on gpu1"]),
        ([Lease("a", "gpu2")], {"a": ALIVE}, set(), ["a request without a lease: a on gpu1"]),
        ([], {}, {"job"}, []),
    ],
    ids=[
        "nothing", "runs", "granted", "forgotten", "remembered", "unleased", "unleased-dead",
        "elsewhere", "waiting",
    ],
)  # fmt: skip
def test_a_lease_and_a_live_request_belong_together(
    leases: list[Lease], claims: dict[str, Claim], reserved: set[str], orphans: list[str]
) -> None:
    assert [str(orphan) for orphan in find_orphans(leases, claims, reserved)] == orphans
