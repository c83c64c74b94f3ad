"""Bars: what each user asked for, got, and had a right to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.load.axes import count_axis
from forebay.load.fairness import fair_shares
from forebay.load.markup import Markup, tag

if TYPE_CHECKING:
    from forebay.load.summary import Group

WIDTH = 440.0
LEFT, RIGHT, TOP, BOTTOM = 92.0, 46.0, 6.0, 26.0
ROW = 30.0
USERS_MAX = 16
NAME_LETTERS_MAX = 13


def user_bars(name: str, title: str, groups: dict[str, Group]) -> Markup:
    """Return a bar for each user: offered behind, served in front, the fair share as a mark."""
    shown = dict(list(groups.items())[:USERS_MAX])
    shares = fair_shares(
        {user: group.offered for user, group in groups.items()},
        sum(group.ok for group in groups.values()),
    )
    height = TOP + ROW * len(shown) + BOTTOM
    x = count_axis([float(group.offered) for group in shown.values()], LEFT, WIDTH - RIGHT)
    pieces: list[str] = []
    for mark in x.marks():
        at = x.place(mark)
        pieces.append(tag("line", x1=at, x2=at, y1=TOP, y2=height - BOTTOM, class_="grid"))
        pieces.append(tag("text", f"{mark:,.0f}", x=at, y=height - 10, class_="mark middle"))
    for row, (user, group) in enumerate(shown.items()):
        pieces += _bar(user, group, shares[user], TOP + row * ROW, x.place)
    told = "; ".join(
        f"{user}: {group.ok:,} of {group.offered:,}, fair share {shares[user]:,.1f}"
        for user, group in shown.items()
    )
    return tag(
        "svg",
        tag("title", title, id=f"{name}-t"),
        tag("desc", told, id=f"{name}-d"),
        *pieces,
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
    )


def _bar(user: str, group: Group, share: float, top: float, place: object) -> list[Markup]:
    assert callable(place)
    offered, served, fair = place(group.offered), place(group.ok), place(share)
    is_long = len(user) > NAME_LETTERS_MAX
    label = user[: NAME_LETTERS_MAX - 1] + "\u2026" if is_long else user
    hint = tag("title", f"{user}: served {group.ok:,} of {group.offered:,}, fair {share:,.1f}")
    return [
        tag("text", label, x=LEFT - 8, y=top + 19, class_="mark end"),
        tag("rect", hint, x=LEFT, y=top + 5, width=max(1.0, offered - LEFT), height=ROW - 10,
            rx=2, class_="offered"),
        tag("rect", x=LEFT, y=top + 9, width=max(0.0, served - LEFT), height=ROW - 18, rx=2,
            class_="served"),
        tag("line", x1=fair, x2=fair, y1=top + 2, y2=top + ROW - 2, class_="fair"),
        tag("text", f"{group.ok:,}", x=offered + 5, y=top + 19, class_="mark"),
    ]  # fmt: skip
