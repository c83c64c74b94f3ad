"""The life of a ticket, as a table. Nothing else may change a state.

An entry is *waiting* while it has no slot, *running* while it holds a lease, and then ends in
exactly one of four ways. The diagram in `docs/internals/scheduler.md` is generated from
`TRANSITIONS`.
"""

from typing import Final, Literal, TypeAlias

from forebay.errors import InvariantBroken

State: TypeAlias = Literal["new", "waiting", "running", "done", "rejected", "expired", "cancelled"]
Cause: TypeAlias = Literal["wait", "route", "return", "finish", "reject", "expire", "cancel"]

ENDED: frozenset[State] = frozenset({"done", "rejected", "expired", "cancelled"})

TRANSITIONS: Final[dict[tuple[State, Cause], State]] = {
    ("new", "route"): "running",
    ("new", "wait"): "waiting",
    ("new", "expire"): "expired",
    ("waiting", "route"): "running",
    ("waiting", "reject"): "rejected",
    ("waiting", "expire"): "expired",
    ("waiting", "cancel"): "cancelled",
    ("running", "return"): "waiting",
    ("running", "finish"): "done",
    ("running", "cancel"): "cancelled",
}


def after(state: State, cause: Cause) -> State:
    """Return the next state; a move that the table does not know is a bug and raises."""
    try:
        return TRANSITIONS[state, cause]
    except KeyError:
        raise InvariantBroken(f"a ticket that is {state} cannot {cause}") from None
