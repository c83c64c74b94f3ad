"""The exception by which a route answers with an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from forebay.settings import SettingsError


class HttpError(Exception):
    """The response is an error; `codes.py` has the status and headers of its code."""

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        details: Mapping[str, object] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(code)
        self.problem = Problem(code, message, param, retry_after_s, details=dict(details or {}))

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the exception for a problem that exists already."""
        error = cls(problem.code, problem.message)
        error.problem = problem
        return error


def invalid(message: str, param: str) -> HttpError:
    """Return the error for a field, header or parameter with an invalid value."""
    return HttpError("invalid_request", message, param)


def invalid_settings(error: SettingsError) -> HttpError:
    """Return the error for a node description with invalid values."""
    param = error.problems[0].key if error.problems else None
    return HttpError("invalid_request", "; ".join(map(str, error.problems)), param)


def unsupported(name: str) -> HttpError:
    """Return the error for a field that this gateway would have to ignore."""
    return HttpError("unsupported", f"{name} is not offered here", name)


def shutting_down() -> HttpError:
    """Return the error for what a stopping gateway no longer accepts."""
    return HttpError("shutting_down", "the gateway is shutting down")
