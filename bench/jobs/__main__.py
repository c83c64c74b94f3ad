"""`python -m bench.jobs [--quick]`: figures of the jobs, raw in bench/results/jobs.json."""

from __future__ import annotations

import json
import sys

from bench.jobs import over_http, store, swaps
from bench.output import RESULTS, console, keep, table


def figures(quick: bool) -> dict[str, object]:
    many = 100_000 if quick else 1_000_000
    return {
        "in_batches": store.submit_in_batches(),
        "by_many": store.submit_by_many(),
        "claims": [store.claim_beside(count) for count in (0, 10_000, many)],
        "start": store.start_with(20_000 if quick else 100_000),
        "over_http": over_http.over_http(),
        "beside_a_batch": over_http.beside_a_batch(),
        "swaps": swaps.compared(),
    }


def show(taken: dict[str, object]) -> None:
    found = json.loads(json.dumps(taken))  # plain types
    shown = table("Jobs on SQLite", "what", "figure", "target")
    row = shown.add_row
    row("submitted in batches of 500", f"{found['in_batches']['jobs_per_s']:,.0f} /s", "2,000 /s")
    row("submitted one by one, 32 at once", f"{found['by_many']['jobs_per_s']:,.0f} /s", "")
    row("submitted one by one, alone", f"{found['by_many']['alone_per_s']:,.0f} /s", "")
    for name, one in found["over_http"].items():
        row(f"over HTTP one by one, {name}", f"{one['jobs_per_s']:,.0f} /s", "300 /s")
    first = found["claims"][0]["median_us"]
    for one in found["claims"]:
        ratio = one["median_us"] / first
        row(f"claim + complete beside {one['finished']:,} finished",
            f"{one['median_us']:,.0f} µs ({ratio:.2f} x)", "1 x")  # fmt: skip
    start = found["start"]
    row(f"start with {start['queued']:,} queued",
        f"{start['seconds']:.2f} s, +{start['grown_mib']:.0f} MiB", "2 s")  # fmt: skip
    beside = found["beside_a_batch"]
    alone_ms, beside_ms = beside["alone_p95_s"] * 1e3, beside["beside_p95_s"] * 1e3
    row("chat p95 alone, beside a batch", f"{alone_ms:.0f}, {beside_ms:.0f} ms", "")
    row("what chat loses to the batch", f"{beside['lost_s'] * 1e3:.0f} ms",
        f"{beside['service_s'] * 1e3:.0f} ms")  # fmt: skip
    screen = console()
    screen.print(shown)
    title = "30 x 3 jobs approved at once, one model in memory (simulated)"
    story = table(title, "policy", "model loads", "makespan", "mean end")
    for name, one in found["swaps"].items():
        story.add_row(name, f"{one['loads']:.0f}", f"{one['makespan_s']:,.0f} s",
                      f"{one['mean_end_s']:,.0f} s")  # fmt: skip
    screen.print(story)


if __name__ == "__main__":
    taken = figures("--quick" in sys.argv)
    show(taken)
    keep(RESULTS / "jobs.json", taken)
