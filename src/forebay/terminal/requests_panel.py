"""The panel of `forebay top` that shows who waits and what runs, request by request."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from forebay.terminal.text import (
    DIM,
    ENDLESS,
    GOOD,
    STRONG,
    WARN,
    Choice,
    Column,
    brief,
    choice_table,
    known,
    line,
    numeric,
)

if TYPE_CHECKING:
    from rich.text import Text

    from forebay.sdk import ListedRequest
    from forebay.terminal.view import TopView

SIGNS = {"running": ("●", GOOD), "waiting": ("◒", WARN)}


def requests(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return the page of requests that the chosen one is on."""
    found = view.shown_requests()
    total = len(view.requests) if view.filter else None
    choice = Choice(
        found, view.chosen_request(), total, "chosen_id", attrgetter("id"), not view.is_still
    )
    none = [] if found else [line((f"  {_nothing(view)}", DIM))]
    return choice_table("Line", COLUMNS, choice, cells, rows) + none


def request_in_words(request: ListedRequest) -> Text:
    """Return what there is to say of the chosen request."""
    said = f": {request.reason}" if request.reason else f": {request.state}"
    if request.node:
        said += f" on {request.node}"
    tokens = f", prompt of {request.prompt_tokens} tokens" if request.prompt_tokens else ""
    return line((f" {request.id}", STRONG), (said + tokens, DIM))


def _nothing(view: TopView) -> str:
    if view.requests_problem:
        return view.requests_problem
    if view.requests:
        return f"No request matches /{view.filter}; Esc shows all."
    return "Nobody waits and nothing runs." if view.has_requests else "Asking the gateway..."


def _state(request: ListedRequest) -> Text:
    return line(SIGNS.get(request.state, ("?", WARN)), " ", request.state)


def _place(request: ListedRequest) -> Text:
    return known("-" if request.position is None else str(request.position), STRONG)


def _left(request: ListedRequest) -> Text:
    estimate = request.estimated_wait_seconds
    return known(brief(None if estimate is None else estimate.p50))


COLUMNS = (
    Column("", 14, lambda request: line("  ", request.user), 0, 30),
    Column("Model", 15, lambda request: line(request.model), 46, 34),
    Column("State", 10, _state),
    numeric("Place", 5, _place),
    numeric("Waited", 7, lambda request: line(brief(request.waited_seconds))),
    numeric("Left", 7, _left, 40),
    Column("Priority", 8, lambda request: line(request.priority), 76),
    Column("Node", 10, lambda request: line(request.node or ""), 96, 16),
    Column("Request", 12, lambda request: line((request.id, DIM)), 64, ENDLESS),
)
