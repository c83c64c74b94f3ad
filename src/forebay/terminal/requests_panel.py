"""The panel of `forebay top` that shows who waits and what runs, request by request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.terminal.text import (
    DIM,
    ENDLESS,
    GOOD,
    STRONG,
    WARN,
    Column,
    brief,
    heading,
    known,
    line,
    named_texts,
    numeric,
    table,
)

if TYPE_CHECKING:
    from rich.text import Text

    from forebay.sdk import ListedRequest
    from forebay.terminal.view import TopView

SIGNS = {"running": ("●", GOOD), "waiting": ("◒", WARN)}


def requests(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return who runs and who waits, each in a line; or why there is nobody to be seen."""
    found = view.shown_requests()
    total = f"{len(found)}/{len(view.requests)}" if view.filter else f"{len(found)}"
    if not found:
        return [heading(f"Line {total}: {_nothing(view)}", cells)]
    shown = f"1-{rows - 1}/{total}" if len(found) >= rows else total
    return table(f"Line {shown}", COLUMNS, found[: rows - 1], cells)


def request_facts(view: TopView, request_id: str | None, cells: int) -> list[Text]:
    """Return all that is known of a request; nothing if it is not in the line any more."""
    request = view.request(request_id)
    if request is None:
        return []
    facts = (
        ("State", f"{request.state} on {request.node}" if request.node else request.state),
        ("Why", request.reason or ""),
        ("Model", request.model),
        ("User", request.user),
        ("Priority", request.priority),
        ("Waited", brief(request.waited_seconds)),
        ("Prompt", f"{request.prompt_tokens} tokens"),
        ("Attempts", str(request.attempt)),
    )
    return named_texts(f"Request {request.id}", facts, cells)


def _nothing(view: TopView) -> str:
    if view.requests_problem:
        return view.requests_problem
    if view.requests:
        return f"no request matches /{view.filter}; Esc shows all"
    return "nobody waits and nothing runs" if view.has_requests else "asking the gateway..."


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
    Column("Request", 12, lambda request: line((request.id, DIM)), 100, ENDLESS),
)
