"""The errors, split by what the caller can do about them. Each class has a stable `code`.

Inside the core an expected refusal is a `Reject` action; an exception there means a bug.
"""

from typing import ClassVar

KEY_REVOKED = "its key was revoked"
"""Why queued work was cancelled."""


class ForebayError(Exception):
    """The root: everything that Forebay raises on purpose."""

    code: ClassVar[str] = "error"


class Rejected(ForebayError):
    """Not now: the same call may succeed later."""

    code = "rejected"


class NotAllowed(ForebayError):
    """Never: the call itself is wrong and will not succeed unchanged."""

    code = "not_allowed"


class BackendFailed(ForebayError):
    """Them: a node broke its side of the contract."""

    code = "node_failed"


class InvariantBroken(ForebayError):
    """Us: a promise of the code does not hold. Always a bug worth reporting."""

    code = "invariant_broken"


class StoreFailed(Rejected):
    """The database of jobs cannot be used now; nothing changed, unless a commit was under way."""

    code = "store_unavailable"
