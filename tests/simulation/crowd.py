"""A hundred thousand users with ten requests each, in a program of its own: memory and work.

Prints one JSON object: bytes of memory for each waiting entry, and Python calls for one arrival
and one finish, with a thousand entries and with a million. Calls are counted, not timed.
"""

import cProfile
import json
import pstats
import resource
import sys

from forebay.core import Scheduler
from forebay.core.actions import Route
from forebay.core.events import Arrived, Finished, NodeChanged
from forebay.core.options import Options

SAMPLE = 500
ENTRIES_EACH = 10
RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def crowd(users: int) -> Scheduler:
    """Return a scheduler with `ENTRIES_EACH` waiting for each user, and one running."""
    scheduler = Scheduler(Options(max_size=10_000_000, wait_s_max=1e9))
    scheduler.handle(NodeChanged("n", 1, ("m",)), 0.0)
    scheduler.handle(Arrived("running", "m", user="first"), 0.0)
    for turn in range(ENTRIES_EACH):
        for user in range(users):
            scheduler.handle(Arrived(f"{user}.{turn}", "m", user=f"user{user}"), float(turn))
    return scheduler


def calls_each(scheduler: Scheduler) -> dict[str, float]:
    """Return how many calls one arrival and one finish with its dispatch take."""
    arriving, finishing = cProfile.Profile(), cProfile.Profile()
    running = "running"
    for number in range(SAMPLE):
        arrived = Arrived(f"late{number}", "m", user=f"user{number % 50}")
        arriving.runcall(scheduler.handle, arrived, 100.0 + number)
        actions = finishing.runcall(scheduler.handle, Finished(running), 100.0 + number)
        started = [action.id for action in actions if isinstance(action, Route)]
        running = started[0]
    return {
        "arrive": pstats.Stats(arriving).total_calls / SAMPLE,  # type: ignore[attr-defined]  # set at run time
        "finish": pstats.Stats(finishing).total_calls / SAMPLE,  # type: ignore[attr-defined]  # as above
    }


def resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES


def main() -> None:
    users = int(sys.argv[1])
    few = calls_each(crowd(100))
    before = resident_bytes()
    scheduler = crowd(users)
    entry_bytes = (resident_bytes() - before) / (users * ENTRIES_EACH)
    many = calls_each(scheduler)
    json.dump({"entry_bytes": entry_bytes, "few": few, "many": many}, sys.stdout)


if __name__ == "__main__":
    main()
