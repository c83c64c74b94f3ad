"""What the turns of a run come to, on each side, and the table of both."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.prefix.load import Turn

Figures = dict[str, Any]


def figures(talks: Sequence[Sequence[Turn]]) -> Figures:
    """Return tokens and times of each turn, and of all but the first ("later")."""
    later = [turn for talk in talks for turn in talk[1:]]
    pairs = (pair for talk in talks for pair in pairwise(talk))
    moves = [one.node != other.node for one, other in pairs if one.node and other.node]
    return {
        "later": {**_summary(later), "went_elsewhere": round(mean(moves or [0]), 3)},
        "by_turn": [_summary(turns) for turns in zip(*talks, strict=True)],
    }


def _summary(turns: Sequence[Turn]) -> dict[str, float]:
    prompt = sum(turn.prompt for turn in turns)
    times = sorted(turn.first_token_s for turn in turns)
    return {
        "computed": round(sum(turn.computed for turn in turns) / prompt, 4),
        "least": round(sum(turn.least for turn in turns) / prompt, 4),
        "computed_tokens_mean": round(mean(turn.computed for turn in turns), 1),
        "computed_tokens_median": median(turn.computed for turn in turns),
        "first_token_s_median": round(median(times), 4),
        "first_token_s_mean": round(mean(times), 4),
        "first_token_s_p95": round(times[int(0.95 * len(times))], 4),
        "prompt_s_mean": round(mean(turn.prompt_s for turn in turns), 4),
    }


def ratios(found: dict[str, Figures]) -> dict[str, float]:
    """Return HAProxy's figures of the later turns over Forebay's."""
    ours, theirs = found["forebay"]["later"], found["haproxy"]["later"]
    names = [name for name in ours if name not in ("least", "went_elsewhere")]
    result = {name: round(theirs[name] / max(1e-9, ours[name]), 2) for name in names}
    return {**result, "computed_at_best": round(theirs["computed"] / ours["least"], 2)}


def print_table(found: dict[str, Figures]) -> None:
    """Print the share of prompt tokens computed and the times, by turn."""
    sides = sorted(found)
    columns = "".join(f"{f'{side} computed':>20}{'first token s':>15}" for side in sides)
    print(f"turn  {'least':>7}{columns}")
    rows = [(str(number + 1), number) for number in range(len(found[sides[0]]["by_turn"]))]
    for name, number in [*rows, ("2-6", -1)]:
        of = [found[side]["later" if name == "2-6" else "by_turn"] for side in sides]
        values = of if name == "2-6" else [one[number] for one in of]
        cells = "".join(
            f"{value['computed']:>20.1%}{value['first_token_s_median']:>15.3f}" for value in values
        )
        print(f"{name:4}  {values[0]['least']:>7.1%}{cells}")
    for side in sides:
        later = found[side]["later"]
        print(f"{side}: {later['went_elsewhere']:.0%} of later turns ran on another node")
    print("HAProxy to Forebay, turns 2 to 6:", ratios(found))
