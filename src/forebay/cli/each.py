"""Send the same request for each of several names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import typer

from forebay.cli.gateway import exit_code
from forebay.cli.output.console import say, tell, tell_json
from forebay.cli.output.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.cli.gateway import GatewayClient

T = TypeVar("T")


def for_each(
    client: GatewayClient,
    noun: str,
    ids: Iterable[T],
    request: Callable[[T], tuple[str, str]],
    said: str,
    as_json: bool,
) -> None:
    """Send each its request, method and path; one that is refused does not stop the others.

    Exits with the worst status where one was refused.
    """
    from forebay.sdk import GatewayError

    answers: list[Any] = []
    status = 0
    for one in ids:
        name = printable(str(one))
        try:
            with client.or_exit(but=GatewayError):
                answers.append(client.ask(*request(one), object).raw)
            if not as_json:
                tell(f"{noun.capitalize()} {name} {said}")
        except GatewayError as refused:
            status = max(status, exit_code(refused))
            error = {"code": refused.code, "message": refused.message}
            answers.append({"id": one, "error": error})
            say(f"forebay: {noun} {name}: {client.explain(refused)}")
    if as_json:
        tell_json(answers)
    if status:
        raise typer.Exit(status)
