"""Tells the scheduler which keys have limits, what they have used today, and when that day ends."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from forebay.core import KeysUsed, OptionsChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from forebay.clock import TimerHandle, Timers
    from forebay.core import Event, Options
    from forebay.settings import QueueSettings, ResolvedKey

TELL_S: Final = 60.0
"""How often the day is told: clocks drift, machines sleep, and another gateway may lead by then."""


class KeyRates:
    """Posts what has changed; from `start` to `stop`, the day as well."""

    def __init__(
        self,
        queue: QueueSettings,
        keys: Iterable[ResolvedKey],
        post: Callable[[Event], None],
        used_today: Callable[[], Mapping[str, int]],
        clock: Timers,
    ) -> None:
        """`used_today` returns what each owner has used since 00:00 UTC, as far as it is known."""
        self._used_today = used_today
        self._options: Options = queue.options()  # as the scheduler knows them
        self._caps: dict[str, int] = {}
        self._post = post
        self._clock = clock
        self._timer: TimerHandle | None = None
        self._started = False
        self.change(queue, keys)

    def change(self, queue: QueueSettings, keys: Iterable[ResolvedKey]) -> None:
        """Take over other settings of the queue, or other keys."""
        limited = [key for key in keys if key.limits or key.max_running]
        self._caps = {key.owner: key.max_running for key in limited}
        limits = {key.owner: key.limits for key in limited if key.limits}
        options = replace(queue.options(), key_limits=limits)
        if options != self._options:
            self._options = options
            self._post(OptionsChanged(options))
            self._tell()

    def paced(self) -> Mapping[str, int]:
        """Return the owners of the keys that have limits or a `max_running`, with that."""
        return self._caps

    def has_day_limits(self) -> bool:
        return any(limits.tokens_per_day for limits in self._options.key_limits.values())

    def start(self) -> None:
        self._started = True
        self._tell()

    def stop(self) -> None:
        """Tell nothing more; may be called twice."""
        self._started = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.has_day_limits():
            return
        now = self._clock.utc()
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        left_s = (midnight - now).total_seconds()
        self._post(KeysUsed(dict(self._used_today()), left_s))
        if self._started:
            self._timer = self._clock.call_at(self._clock.monotonic_s() + TELL_S, self._tell)
