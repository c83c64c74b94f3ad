"""Limits of keys that delay requests instead of refusing them: their rates, and `max_running`.

**Theory.** Requests and tokens per minute are token buckets that hold one minute and are refilled
continuously (Turner, "New Directions in Communications", 1986); tokens per day are a count that
starts anew when the day ends. An entry may start when every bucket has its estimate (prompt +
min(limit, median answer of the lane)), or is full where it holds less than that. It is charged
when it starts, once whatever its attempts, and corrected when the real count is known, which may
leave a debt: over any time t a key starts at most its bucket + t * rate, less what it was given
back in that time. A debt is at most one bucket: no count that a node reports keeps a key waiting
for more than two minutes, and one request takes at most two buckets, and gives back no more than it
took.

**Parking.** An entry over its key's rate is taken out of its queue and *parked*: no pick meets it,
so it blocks nobody and costs nothing while it waits. It still counts in every bound, keeps its
number and its deadline, and its user's turn: a line of parked entries is a wait queue of its own.
When the buckets allow it, the first of a line is put back, its *offer*, and the next one when that
has started or ended. So an entry is moved O(1) times for each time it is next, O(log n) each, and
one timer wakes a key. Who was passed over, or ran already, goes before them and is no offer:
it may be kept off a node that the next can use.

**Order.** What a bucket gives belongs to the first of the key's lines: the highest class, then the
oldest head. While that one waits for the bucket nothing behind it starts, or small requests would
take from a large one for ever. A line whose offer waits for a slot holds nobody back.

**`max_running`.** Of a key with such a cap, jobs and prompts of sessions wait in the same way while
as many of its requests count: live calls from their arrival to their end, jobs and prompts while
they run. One that comes back counts no more, or it would keep its key from everything for as long
as no node can take it. A job waits as well while a live call or a prompt of its key does. They have
lines of their own, because live calls that are counted already must not stand behind them, and a
prompt's time limit stands still while it is parked. The end of a request of the key looks at them
again.

It does not remember the last minute over a restart, and a core that takes over from another begins
with empty buckets (`KeysUsed.minute_is_used`): too slow for a minute rather than too fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forebay.core import fairness, retries
from forebay.core.actions import RateStatus
from forebay.core.buckets import ROUNDING
from forebay.core.charging import expected
from forebay.core.options import KeyLimits
from forebay.core.records import NEVER_S, SWEEP_SLACK, Account, Claim, KeyRate, ParkedLine
from forebay.core.service_times import TOKENS_MAX

if TYPE_CHECKING:
    from forebay.core.cluster import Cluster
    from forebay.core.events import Arrived, KeysUsed
    from forebay.core.lines import Lines
    from forebay.core.options import Options
    from forebay.core.records import Entry, Lane, User
    from forebay.core.tally import Tally
    from forebay.core.timers import TimerQueue

DAY_S: Final = 86_400.0
WAKE_S_MIN: Final = 0.001
"""A wake-up is never now, whatever the rounding: nothing may be due for ever in one step."""


class Rates:
    """The keys that have limits, and what of theirs waits for them."""

    def __init__(
        self, cluster: Cluster, lines: Lines, timers: TimerQueue, tally: Tally, job_rank: int
    ) -> None:
        # Keys with rates, and those with a cap that have something unfinished.
        self.keys: dict[str, KeyRate] = {}
        self._day_ends_s = NEVER_S  # while nobody has said when, it is a day from the first limit
        self._cluster = cluster
        self._lines = lines
        self._timers = timers
        self._tally = tally
        self._job_rank = job_rank
        self._seen = 0

    # -- limits and days

    def change(self, limits: dict[str, KeyLimits], now_s: float) -> None:
        """Take over other limits; what waits for one that is gone waits no longer."""
        for key, asked in limits.items():
            if asked and key not in self.keys:
                self._new(key)
        for rate in list(self.keys.values()):
            rate.limits = limits.get(rate.key) or KeyLimits()  # what was used of them stays used
            rate.requests.resize(rate.limits.requests_per_minute, now_s)
            rate.tokens.resize(rate.limits.tokens_per_minute, now_s)
            self._forget_if_idle(rate)
            self.offer(rate, now_s)

    def _new(self, key: str) -> KeyRate:
        self._seen += 1
        rate = self.keys[key] = KeyRate(key, self._seen, self._job_rank + 1)
        return rate

    def _forget_if_idle(self, rate: KeyRate) -> None:
        if not rate.tickets and not rate.limits:
            del self.keys[rate.key]

    def note_usage(self, event: KeysUsed, now_s: float) -> None:
        """Count what others know of: never less than what is counted here."""
        if event.day_ends_in_s > 0.0:
            ends_s = now_s + event.day_ends_in_s
            if ends_s - self._day_ends_s > DAY_S / 2:  # another day: our clock was behind
                self._begin_day()
            self._day_ends_s = ends_s
        for rate in self.keys.values():
            rate.used_today = max(rate.used_today, event.tokens_today.get(rate.key, 0))
            if event.minute_is_used:
                rate.requests.empty(now_s)
                rate.tokens.empty(now_s)
            self.offer(rate, now_s)

    def _begin_day(self) -> None:
        for rate in self.keys.values():
            rate.used_today = 0.0

    def _day_left_s(self, now_s: float) -> float:
        if self._day_ends_s == NEVER_S:
            self._day_ends_s = now_s + DAY_S
        elif now_s >= self._day_ends_s:
            self._begin_day()
            self._day_ends_s += DAY_S * (1 + (now_s - self._day_ends_s) // DAY_S)
        return self._day_ends_s - now_s

    # -- caps

    def enter(self, arrival: Arrived) -> KeyRate:
        """Count something unfinished of a key with a cap."""
        room = self.keys.get(arrival.key) or self._new(arrival.key)
        room.running_max = arrival.key_running_max
        room.tickets += 1
        if not is_gated(arrival):
            room.held += 1
        return room

    def exit(self, entry: Entry, room: KeyRate, now_s: float) -> None:
        """Forget one that has ended; another of its key may start in its place."""
        claim = entry.claim
        if claim is None or not claim.gated or claim.held:
            room.held -= 1
        room.tickets -= 1
        self._forget_if_idle(room)
        self.offer(room, now_s)

    # -- what the rest of the core asks

    def claim_of(self, arrival: Arrived, lane: Lane, options: Options) -> Claim | None:
        """Return what an arrival takes of what may delay it: its key's rate, or its cap."""
        rate, gated = self.keys.get(arrival.key), is_gated(arrival)
        if rate is None or not (gated or rate.limits):
            return None
        return Claim(rate, expected(lane, arrival, options), gated)

    def may_start(self, claim: Claim, place: tuple[int, int], now_s: float) -> bool:
        """Say whether cap and buckets let one start, and none that waits for them goes before."""
        if claim.gated and is_full(claim.rate, place[0]):
            return False
        if claim.charged:  # it ran already: only the cap may keep it
            return True
        if self.bucket_wait_s(claim.rate, claim.tokens, now_s) > 0.0:
            return False
        first = next_parked(claim.rate)
        return first is None or place <= place_of(first)

    def wait_s(self, entry: Entry, ahead: int, now_s: float) -> float:
        """Return when an entry could start at best that has so many of its key before it."""
        claim = entry.claim
        if claim is None or claim.charged or claim.rank is None:
            return 0.0
        waiting, tokens = owed_up_to(claim.rate, claim.rank)
        before = (ahead, tokens * ahead / max(1, waiting))
        return self.bucket_wait_s(claim.rate, claim.tokens, now_s, before)

    def bucket_wait_s(
        self, rate: KeyRate, tokens: float, now_s: float, ahead: tuple[int, float] = (0, 0.0)
    ) -> float:
        """Return when the buckets allow one of so many tokens, after those ahead of it."""
        requests_ahead, tokens_ahead = ahead
        day_left_s = self._day_left_s(now_s)
        wait_s = rate.requests.wait_s(1.0, requests_ahead, now_s)
        wait_s = max(wait_s, rate.tokens.wait_s(tokens, tokens_ahead, now_s))
        limit, used = rate.limits.tokens_per_day, rate.used_today + tokens_ahead
        if limit and used > 0.0 and used + tokens > limit:
            wait_s = max(wait_s, day_left_s)
        return wait_s

    def status(self, rate: KeyRate, now_s: float) -> RateStatus:
        """Return what callers are told of the limits and of what is left of them."""
        day_left_s = self._day_left_s(now_s)
        limits, requests, tokens = rate.limits, rate.requests, rate.tokens
        limit, left, reset_s = limits.tokens_per_minute, tokens.level(now_s), tokens.reset_s(now_s)
        day_left = limits.tokens_per_day - rate.used_today
        if limits.tokens_per_day and (not limit or day_left < left):
            limit, left, reset_s = limits.tokens_per_day, day_left, day_left_s
        return RateStatus(
            limits.requests_per_minute, max(0, int(requests.level(now_s) + ROUNDING)),
            requests.reset_s(now_s), limit, max(0, int(left + ROUNDING)), reset_s,
        )  # fmt: skip

    # -- what happens to entries

    def parks(self, entry: Entry, now_s: float) -> bool:
        """Park an entry that begins to wait if it is over its key's rate; False: it may queue."""
        claim = entry.claim
        if claim is None or claim.charged:
            return False
        claim.rank = entry.queue.rank
        claim.rate.owed[claim.rank] += 1
        claim.rate.tokens_owed[claim.rank] += claim.tokens
        in_line = (entry.queue, claim.gated) in claim.rate.lines
        if not in_line and self.may_start(claim, place_of(entry), now_s):
            return False
        self._park(entry, claim, now_s)
        self.offer(claim.rate, now_s)
        return True

    def parks_head(self, entry: Entry, now_s: float) -> bool:
        """Park the entry that is next for a slot if its key is over its rate by now.

        It goes before the offer of its line, which stands there again.
        """
        claim = entry.claim
        if claim is None or self.may_start(claim, place_of(entry), now_s):
            return False
        line = claim.rate.lines.get((entry.queue, claim.gated))
        offer = None if line is None else line.offer
        for one in (entry,) if offer is None or offer is entry else (entry, offer):
            self._lines.leave(one)
            self._park(one, _claim(one), now_s)
        self.offer(claim.rate, now_s)
        return True

    def start(self, entry: Entry, claim: Claim, now_s: float) -> RateStatus:
        """Charge a start, once; the next of its line may follow in this step."""
        rate = claim.rate
        self._day_left_s(now_s)
        if claim.gated:
            claim.held = True
            rate.held += 1
        if not claim.charged:
            charge_claim(rate, claim, 1, claim.tokens, now_s)
        self._forget_waiting(entry, claim)
        status = self.status(rate, now_s)
        self.offer(rate, now_s)
        return status

    def come_back(self, claim: Claim, now_s: float) -> None:
        """Count one no more that came back; another of its key may start meanwhile."""
        if claim.held:
            claim.held = False
            claim.rate.held -= 1
            self.offer(claim.rate, now_s)

    def resume(self, claim: Claim, *, runs: bool) -> None:
        """Take over one that another core has charged: its minute is that core's."""
        claim.charged = True
        if runs:
            if claim.gated:
                claim.held = True
                claim.rate.held += 1
            claim.rate.used_today += claim.tokens
        else:
            claim.tokens = 0.0
        claim.taken = claim.tokens

    def settle(self, entry: Entry, claim: Claim, used: tuple[int, int], now_s: float) -> None:
        """Correct the charge to the prompt and output tokens used; -1 leaves the estimate."""
        prompt, output = used
        if output < 0:
            return
        prompt = entry.arrival.prompt_tokens if prompt < 0 else prompt
        real = float(min(prompt, TOKENS_MAX) + min(output, TOKENS_MAX))
        self._day_left_s(now_s)
        charge_claim(claim.rate, claim, 0, real, now_s)
        self.offer(claim.rate, now_s)

    def refund(self, claim: Claim, requests: int, now_s: float) -> None:
        """Take all tokens of a start back, and the start itself where that is one request."""
        if claim.charged:
            charge_claim(claim.rate, claim, -requests, 0.0, now_s)
        self.offer(claim.rate, now_s)

    def leave_line(self, entry: Entry, claim: Claim, now_s: float) -> bool:
        """Take an entry out of its line; return whether it was parked there."""
        line, was_parked = claim.line, claim.parked
        if was_parked and line is not None:
            fairness.leave(line, entry)
            self._count_parked(entry, claim, now_s, parked=False)
        self._forget_waiting(entry, claim)
        return was_parked

    def offer(self, rate: KeyRate, now_s: float) -> None:
        """Put those back that the buckets allow, in order; ask to be woken for the next."""
        wake_s = NEVER_S
        while rate.lines and (head := next_parked(rate)) is not None:
            claim, wait_s = _claim(head), 0.0
            if not claim.charged:
                wait_s = self.bucket_wait_s(rate, claim.tokens, now_s)
            if wait_s > 0.0:
                wake_s = now_s + max(wait_s, WAKE_S_MIN)
                break
            self._put_back(head, now_s)
        self._timers.set(rate, wake_s)

    # -- lines

    def _park(self, entry: Entry, claim: Claim, now_s: float) -> None:
        rate, queue = claim.rate, entry.queue
        retries.forget_hold(entry)
        line = rate.lines.get((queue, claim.gated))
        if line is None:
            line = rate.lines[queue, claim.gated] = ParkedLine(queue, claim.gated)
        entry.account = account = _account_in(line, entry.user, entry.arrival.weight)
        if line.offer is entry:  # it did not start after all
            line.offer = None
            fairness.settle(line, account, entry, -entry.price / account.weight)
        claim.line = line
        fairness.join(line, entry, first=entry.charged_on is not None)  # it was its turn once
        self._count_parked(entry, claim, now_s, parked=True)
        if not claim.was_parked and rate.limits:
            claim.was_parked = True
            self._tally.rate_waits += 1

    def _put_back(self, entry: Entry, now_s: float) -> None:
        """Let the head of a line stand in its queue again, at its old place."""
        claim, queue = _claim(entry), entry.queue
        line = claim.line
        assert line is not None
        fairness.leave(line, entry)
        passed_over = entry.charged_on is not None  # when it was its turn
        if not passed_over:
            fairness.charge(line, entry.account, entry, entry.price / entry.account.weight)
            line.offer = entry
        self._count_parked(entry, claim, now_s, parked=False)
        entry.account = fairness.account_of(queue, entry.user, entry.arrival.weight)
        self._lines.join(entry, now_s, now_s, first=passed_over)
        open_nodes, short = self._cluster.open, self._lines.short
        for name, node in queue.lane.nodes.items():
            if name in open_nodes or name in short:
                self._lines.stale[name] = node

    def _count_parked(self, entry: Entry, claim: Claim, now_s: float, *, parked: bool) -> None:
        claim.parked = parked
        if entry.queue.rank == self._job_rank:
            return
        entry.queue.lane.parked += 1 if parked else -1
        if parked:
            claim.parked_s = now_s
        if claim.gated:  # its time limit stands still meanwhile
            if not parked:
                entry.wait_left_s += now_s - claim.parked_s
            entry.deadline_s = NEVER_S if parked else entry.since_s + entry.wait_left_s
            self._timers.arm(entry)

    def _forget_waiting(self, entry: Entry, claim: Claim) -> None:
        rate, line = claim.rate, claim.line
        if claim.rank is not None:
            rate.owed[claim.rank] -= 1
            rate.tokens_owed[claim.rank] -= claim.tokens
            claim.rank = None
        if line is not None:
            claim.line = None
            if line.offer is entry:
                line.offer = None
            place = line.queue, line.gated
            if line.offer is None and not line.waiting and rate.lines.get(place) is line:
                del rate.lines[place]


def is_gated(arrival: Arrived) -> bool:
    """Say whether something waits for the cap of its key: a job or a prompt, where there is one."""
    return arrival.key_running_max > 0 and (arrival.job or arrival.patient)


def is_full(rate: KeyRate, rank: int) -> bool:
    """Say whether its cap keeps a prompt, or a job by its rank, from starting now."""
    return rate.held >= rate.running_max or (rate.calls > 0 and rank == len(rate.owed) - 1)


def charge_claim(rate: KeyRate, claim: Claim, requests: int, tokens: float, now_s: float) -> None:
    """Charge a start, or correct what it was charged to so many tokens in all."""
    if requests:
        rate.requests.take(requests, now_s)
    claim.taken += rate.tokens.take(tokens - claim.taken, now_s)
    added = tokens - claim.tokens if claim.charged else tokens
    rate.used_today = max(0.0, rate.used_today + added)
    claim.tokens, claim.charged = tokens, True


def owed_up_to(rate: KeyRate, rank: int) -> tuple[int, float]:
    """Return the entries of the classes up to one that wait and are not charged."""
    return sum(rate.owed[: rank + 1]), sum(rate.tokens_owed[: rank + 1])


def next_parked(rate: KeyRate) -> Entry | None:
    """Return the first of those that wait for the buckets: the highest class, then the oldest."""
    first: Entry | None = None
    for line in rate.lines.values():
        if line.gated and is_full(rate, line.rank):
            continue
        head = _head_of(line)
        if head is not None and (first is None or place_of(head) < place_of(first)):
            first = head
    return first


def _head_of(line: ParkedLine) -> Entry | None:
    """Return who of a line is put back next: the oldest whose turn it was, else one at a time."""
    passed_over = [group[0] for group in line.returned.values()]
    if passed_over:
        return min(passed_over, key=place_of)
    return None if line.offer is not None else fairness.best(line)


def place_of(entry: Entry) -> tuple[int, int]:
    """Return the order in which those of one key have its buckets."""
    return entry.queue.rank, entry.seq


def _account_in(line: ParkedLine, user: User, weight: float) -> Account:
    """Return the user's standing in this line; it ends with the line."""
    accounts = line.accounts
    account = accounts.get(user)
    if account is None:
        if len(accounts) > 2 * line.waiting + SWEEP_SLACK:
            floor = line.clock - line.burst
            kept = {u: a for u, a in accounts.items() if a.live or a.counter > floor}
            line.accounts = accounts = kept
        account = accounts[user] = Account(user, line.clock - line.burst, weight)
    account.weight = weight
    return account


def _claim(entry: Entry) -> Claim:
    assert entry.claim is not None
    return entry.claim
