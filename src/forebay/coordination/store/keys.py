"""Every key in the store: what it holds, how long it lives, what it costs.

The braces put all keys of a fleet into one slot of a cluster. Nothing here is worth a backup: with
an empty store the fleet elects a leader under a higher epoch and announces everything anew.

- `forebay:{fleet}:lease`: `epoch:member` of the leader; gone one lease after its last renewal.
- `forebay:{fleet}:epoch`: the highest epoch so far; stays, and replicas remember it, too.
- `forebay:{fleet}:members`: sorted set, member -> its last heartbeat, by the store's clock; a
  member is forgotten after one lease.
- `forebay:{fleet}:about`: hash, member -> its `About`; as long as the member.
- `forebay:{fleet}:up:EPOCH`: stream of `ReplicaBatch` to the leader of that epoch; gone ten leases
  after the last heartbeat of any replica that follows it.
- `forebay:{fleet}:down:MEMBER`: stream of `Orders` to a replica; likewise.

Cost: three times a lease each replica makes one call (`heartbeat`) that signs, elects and reads the
membership; beside it one call for each batch that goes up and one for all that goes down at once.
A request that finds a slot lent to its replica, or its replica leading, costs no call on its way;
its replica's next batch mentions it. A stream keeps about a thousand entries.
"""

LEASE = "forebay:{fleet}:lease"
EPOCH = "forebay:{fleet}:epoch"
MEMBERS = "forebay:{fleet}:members"
ABOUT = "forebay:{fleet}:about"
STREAM_MAX = 1000
"""Entries a stream keeps, more or less: who falls behind by more announces itself anew."""
LINGER = 10
"""How many leases a stream is kept that nobody uses."""


def up(epoch: int) -> str:
    """Return the stream to the leader of an epoch."""
    return f"forebay:{{fleet}}:up:{epoch}"


def down(member: str) -> str:
    """Return the stream to a replica."""
    return f"forebay:{{fleet}}:down:{member}"
