"""Values that the Tab key offers: from the settings, or from a gateway that answers at once.

Silent and short: where no gateway answers, nothing is offered.
"""

from __future__ import annotations

import contextlib
import io
import re
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LIMIT_S = 1.0
"""Whoever has pressed Tab does not wait longer."""
OFFERED_MAX = 100
PLAIN = re.compile(r"[A-Za-z0-9._:/@+,][A-Za-z0-9._:/@+=,-]*")
"""Values that mean only themselves in every shell, and are no option.

Bash puts an offer on the line as it is, so that Enter would run what is in it; and models and nodes
are named by whoever runs them. What is not plain can be typed, with the quotes that it needs.
"""


def node_names(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the nodes of the gateway."""
    nodes = _asked(ctx, "/admin/nodes")
    return _fitting(
        ((_word(node.get("name")), _word(node.get("state"))) for node in nodes), incomplete
    )


def model_names(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the models of the gateway."""
    models = _asked(ctx, "/v1/models")
    return _fitting(((_word(model.get("id")), "") for model in models), incomplete)


def request_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the requests that wait or run."""
    rows = _asked(ctx, f"/v1/queue/requests?limit={OFFERED_MAX}")
    live = (row for row in rows if row.get("state") != "ended")
    return _fitting(((_word(row.get("id")), _word(row.get("state"))) for row in live), incomplete)


def jobs_that_are(*statuses: str) -> Callable[..., list[tuple[str, str]]]:
    """Return what offers the newest jobs of some statuses; of all where none is named."""

    def job_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        jobs = _asked(ctx, f"/jobs?limit={OFFERED_MAX}")
        found = (job for job in jobs if not statuses or job.get("status") in statuses)
        return _fitting(((_word(job.get("id")), _job(job)) for job in found), incomplete)

    return job_ids


def one_of(*values: str) -> Callable[..., list[tuple[str, str]]]:
    """Return what offers a few words."""

    def words(incomplete: str) -> list[tuple[str, str]]:
        return _fitting(((value, "") for value in values), incomplete)

    return words


def settings(incomplete: str) -> list[tuple[str, str]]:
    """Offer `key=`, and then the values that a key may have where they are few."""
    from forebay.settings.names import sections

    fields = {
        f"{section}.{name}": field
        for section, named in sections().items()
        for name, field in named.items()
    }
    key, equals, _ = incomplete.partition("=")
    if equals:
        values = _values_of(fields[key].annotation) if key in fields else ()
        return _fitting(((f"{key}={value}", "") for value in values), incomplete)
    first_lines = (
        (f"{key}=", (field.description or "").partition("\n")[0]) for key, field in fields.items()
    )
    return _fitting(first_lines, incomplete)


def kinds(incomplete: str) -> list[tuple[str, str]]:
    """Offer the kinds of nodes."""
    from forebay.settings.nodes import KINDS

    return _fitting(((kind, "") for kind in KINDS), incomplete)


def _values_of(annotation: Any) -> tuple[str, ...]:
    if annotation is bool:
        return ("true", "false")
    if get_origin(annotation) is Literal:
        return tuple(str(value) for value in get_args(annotation))
    return ()


def _job(job: dict[str, Any]) -> str:
    return f"{_word(job.get('type'))}, {_word(job.get('status'))}"


def _word(said: object) -> str:
    """Return what a gateway says; nothing where a shell might read more in it."""
    return str(said) if isinstance(said, str | int) and PLAIN.fullmatch(str(said)) else ""


def _fitting(pairs: Iterable[tuple[str, str]], incomplete: str) -> list[tuple[str, str]]:
    found = [pair for pair in pairs if pair[0] and pair[0].startswith(incomplete)]
    return found[:OFFERED_MAX]


def _asked(ctx: typer.Context, path: str) -> list[dict[str, Any]]:
    """Return the list that a gateway has there; an empty one where anything is in the way."""
    from forebay.cli.gateway import GatewayClient
    from forebay.sdk import SdkError

    # Nothing may be said to somebody who is in the middle of a line.
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            client = GatewayClient(ctx.params.get("url"), ctx.params.get("key_env") or "", LIMIT_S)
            listed = client.ask("GET", path, dict[str, Any]).value["data"]
        except (SdkError, typer.Exit, KeyError):
            return []
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
