"""`GET /v1/usage`: requests and tokens by the hour, per key, user and model."""

from __future__ import annotations

import asyncio
import csv
import io
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from forebay.api.records import HourlyUsage, Usage
from forebay.gateway.errors.http_error import invalid
from forebay.gateway.http.authorization import seen_by
from forebay.records.usage import ANSWER_MAX, HOUR_S, UsageQuery

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.records.service import RecordService
    from forebay.records.usage import UsageRow

GROUPS: Final = ("key", "user", "model")
FORMATS: Final = ("json", "csv")
DAY: Final = 24
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would compute."""


@dataclass(frozen=True)
class UsageRoutes:
    """A key sees its own usage, an admin all; without keys, callers that may use `/admin`."""

    authorizer: Authorizer
    records: RecordService

    def routes(self) -> list[Route]:
        return [Route("/v1/usage", self.usage)]

    async def usage(self, request: Request) -> Response:
        caller = self.authorizer.caller(request)
        if caller.key is None:
            self.authorizer.admin(request)
        asked = request.query_params
        form = asked.get("format", "json")
        if form not in FORMATS:
            raise invalid("format is json or csv", "format")
        by = asked.get("by", "")
        if by and by not in GROUPS:
            raise invalid("by must be key, user or model", "by")
        last = self._hour(asked.get("to", ""), "to", 0)
        first = self._hour(asked.get("from", ""), "from", DAY - 1)
        of_key = seen_by(caller) or None
        groups = (by,) if by else GROUPS
        rows = await self.records.usage_of(UsageQuery(first, last, groups, of_key, ANSWER_MAX + 1))
        if len(rows) > ANSWER_MAX:
            words = f"that is more than {ANSWER_MAX} rows: ask for a shorter time, or by=key"
            raise invalid(words, "from")
        name_of = self.authorizer.name_of
        rows = [(key._replace(key=name_of(key.key)), counts) for key, counts in rows]
        body = await asyncio.to_thread(_as_csv if form == "csv" else _as_json, rows, groups)
        answer = Response(body, media_type="text/csv" if form == "csv" else "application/json")
        answer.headers["cache-control"] = "no-store"
        return answer

    def _hour(self, given: str, name: str, hours_ago: int) -> int:
        """Return the hour of a time, given in ISO 8601 or in seconds since 1970."""
        if not given:
            return int(self.records.now()) // HOUR_S - hours_ago
        try:
            if given.isascii() and given.isdigit():
                seconds = float(given)
            else:
                time = datetime.fromisoformat(given.replace(" ", "+"))  # a + that was not escaped
                seconds = time.timestamp() if time.tzinfo else time.replace(tzinfo=UTC).timestamp()
        except (ValueError, OverflowError):
            seconds = -1.0
        if not 0 <= seconds < 1e11:
            words = f"{name} must be a time such as 2026-01-31T12:00Z, or seconds since 1970"
            raise invalid(words, name)
        return int(seconds) // HOUR_S


def _rows(rows: Iterable[UsageRow], groups: tuple[str, ...]) -> Iterable[HourlyUsage]:
    """Yield rows as they are shown: what is summed up over has no value."""
    for key, counts in rows:
        hour = datetime.fromtimestamp(key.hour * HOUR_S, UTC).strftime("%Y-%m-%dT%H:00:00Z")
        whose: dict[str, Any] = {name: getattr(key, name) for name in groups}
        yield HourlyUsage(hour, **whose, **counts._asdict())


def _as_json(rows: list[UsageRow], groups: tuple[str, ...]) -> bytes:
    return msgspec.json.encode(Usage(list(_rows(rows, groups))))


def _as_csv(rows: list[UsageRow], groups: tuple[str, ...]) -> bytes:
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(HourlyUsage.__struct_fields__)
    for row in _rows(rows, groups):
        lines.writerow(map(_cell, msgspec.structs.astuple(row)))
    return text.getvalue().encode()


def _cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula.

    >>> _cell("=1+1"), _cell("ann"), _cell(None), _cell(3)
    ("'=1+1", 'ann', '', 3)
    """
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
