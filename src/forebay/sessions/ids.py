"""Ids of sessions: where several gateways share a queue, they name the one that has the session."""

from __future__ import annotations

import re

_NAMED = re.compile(r"ses_([0-9a-f]{8})_[0-9a-f]{32}")
_PLAIN = re.compile(r"ses_[0-9a-f]{32}")


def session_id(replica: str, secret: str) -> str:
    """Return the id of a new session; `secret` is what nobody can guess.

    >>> session_id("", "ab" * 16)
    'ses_abababababababababababababababab'
    """
    return f"ses_{replica}_{secret}" if replica else f"ses_{secret}"


def replica_of(session_id: str) -> str | None:
    """Return the gateway that an id names; None where it names none.

    >>> replica_of("ses_0a1b2c3d_" + "ab" * 16), replica_of("ses_" + "ab" * 16)
    ('0a1b2c3d', None)
    """
    found = _NAMED.fullmatch(session_id)
    return found.group(1) if found is not None else None


def is_plain(session_id: str) -> bool:
    """Say whether an id is one that a gateway gave which worked alone."""
    return _PLAIN.fullmatch(session_id) is not None
