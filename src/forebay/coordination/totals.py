"""What was counted, over all leaders: a new one goes on from what the one before it said last."""

from forebay.core import Totals


def added(before: Totals, now: Totals) -> Totals:
    """Return two counts added up."""
    rejected = dict(before.rejected)
    for code, count in now.rejected.items():
        rejected[code] = rejected.get(code, 0) + count
    return Totals(
        accepted=before.accepted + now.accepted,
        enqueued=before.enqueued + now.enqueued,
        served=before.served + now.served,
        failed=before.failed + now.failed,
        expired=before.expired + now.expired,
        cancelled=before.cancelled + now.cancelled,
        returned=before.returned + now.returned,
        swaps=before.swaps + now.swaps,
        rejected=rejected,
    )
