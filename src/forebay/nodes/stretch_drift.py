"""Whether requests have become slower or faster for good, at a limit that holds: for `slot_limit`.

A CUSUM test, both ways (Page, 1954): what rounds are off by is added up, less what noise explains
and less what is no change worth following.
"""

from __future__ import annotations

from typing import Final, Literal

SLOWER: Final = 0.45
FASTER: Final = 0.1
"""A lasting change of the stretch (its logarithm) below this is none: machines are slower at times,
and whoever goes down for that has to find its way up again."""
ALARM: Final = 0.1
"""What changes of the stretch must add up to, beyond that and beyond noise."""


class StretchDrift:
    """What the stretch of rounds has been off by since the limit holds.

    >>> drift = StretchDrift()
    >>> [drift.note(shift, noise=0.05) for shift in (0.5, 0.5, 0.9)]
    ['', '', 'slower']
    """

    __slots__ = ("_faster", "_slower")

    def __init__(self) -> None:
        self._slower = self._faster = 0.0

    def restart(self) -> None:
        self._slower = self._faster = 0.0

    @property
    def is_none(self) -> bool:
        """Whether nothing has been off by more than noise, nor is that still to be made up for."""
        return not (self._slower or self._faster)

    def note(self, shift: float, noise: float) -> Literal["slower", "faster", ""]:
        """Take by how much longer than known the requests of a round took; say what that means."""
        self._slower = max(0.0, self._slower + shift - SLOWER - noise)
        self._faster = max(0.0, self._faster - shift - FASTER - noise)
        alarm = ALARM + 4.0 * noise
        if self._slower > alarm:
            return "slower"
        return "faster" if self._faster > alarm else ""
