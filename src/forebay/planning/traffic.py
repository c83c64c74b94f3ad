"""The traffic to replay: one value a request, from an access log or from a trace."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forebay.core.arrivals import WEIGHT_MAX, WEIGHT_MIN
from forebay.gateway.hot.access_record import AccessRecord
from forebay.load.quantities import BadPlan
from forebay.load.samples import RequestSample
from forebay.load.trace import LINE_CHARACTERS_MAX, TOKENS_MAX, read_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from forebay.load.plan import Mix

REQUESTS_MAX = 1_000_000
"""All of them are kept, about 500 bytes each."""
SHIFT_S_MAX = 60.0
"""By how much a copied user's day is moved: enough that no request meets its own copy."""
AMOUNT_MAX = 1e12
"""Above all times and sizes that a gateway writes."""
NEVER_QUEUED = ("model_not_found", "route_not_supported")
"""Outcomes of requests with an id that no queue could have served."""
GREETING_LINES_MAX = 1000
"""How far the first request of an access log is looked for."""
TRACE_MODEL = "model"
"""What traces call the model that they do not name."""
FAMILIES = {"/api/": "ollama", "/v1/messages": "anthropic"}
"""By how a route begins; all others are OpenAI's."""
Source: TypeAlias = Literal["access log", "trace"]


class TrafficRequest(Struct, frozen=True, gc=False):
    """One request, as its caller sent it, and how long it ran when it did."""

    at_s: float
    """From the first request on."""
    model: str
    user: str = ""
    priority: str = "normal"
    family: str = "openai"
    prompt_tokens: int = 0
    output_tokens: int = 0
    output_limit: int = 0
    size_bytes: int = 0
    weight: float = 1.0
    max_wait_s: float | None = None
    stream: bool = False
    job: bool = False
    node: str = ""
    """Where it ran; "" where it did not, or nobody knows."""
    waited_s: float = 0.0
    first_byte_s: float = 0.0
    run_s: float = 0.0
    """How long it held its slot; 0 where it did not run."""
    is_whole: bool = False
    """It was answered in full, at the first attempt: good to fit service times from."""
    leaves_after_s: float | None = None
    """Its client gave up waiting after this."""
    service_s: float = 0.0
    """How long it takes on a node of usual speed, its model being loaded; known once fitted."""


class Traffic(Struct, frozen=True):
    """All requests in order of arrival, with their outcomes where known."""

    source: Source
    requests: list[TrafficRequest]
    recorded: list[RequestSample]
    """One for each request of an access log but for jobs; none of a trace."""
    skipped: int = 0
    """Lines that are no request for the queue."""

    @property
    def span_s(self) -> float:
        return self.requests[-1].at_s

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(request.model for request in self.requests))


class _TraceLine(Struct):
    """One line of a trace in JSON, as Mooncake publishes them, or with names of ours."""

    timestamp: float | None = None
    """Milliseconds."""
    at_s: float | None = None
    input_length: int | None = None
    prompt_tokens: int | None = None
    output_length: int | None = None
    output_tokens: int | None = None
    user: str = ""
    priority: str = "normal"
    model: str = TRACE_MODEL


def read_traffic(path: Path) -> Traffic:
    """Read an access log, or a trace in CSV or JSON lines; raises BadPlan, saying what is wrong."""
    first = _telling_line(path)
    if not first.startswith("{"):
        rows = (
            TrafficRequest(row.at_s, TRACE_MODEL, prompt_tokens=row.prompt_tokens,
                           output_tokens=row.tokens_max)
            for row in read_trace(path, "--from")
        )  # fmt: skip
        return _traffic("trace", _bounded(rows, path), path)
    if '"outcome"' in first or not ('"timestamp"' in first or '"at_s"' in first):
        return _read_access_log(path)
    return _traffic("trace", _bounded(_trace_lines(path), path), path)


def _telling_line(path: Path) -> str:
    """Return the line by which a file is known: the first of a request in a log, else its first.

    What `forebay serve` says to people, and what others write, may come before in the same file.
    """
    if path.exists() and not path.is_file():
        raise BadPlan(f"--from: {path} is not a regular file. Save the log to one.")
    first, is_prefixed = "", False
    for line in islice(_lines(path), GREETING_LINES_MAX):
        first = first or line
        if '"outcome"' in line:
            if line.startswith("{"):
                return line
            is_prefixed = is_prefixed or '{"time":' in line
    if not first:
        raise BadPlan(f"--from: {path} is empty.")
    if is_prefixed:
        raise BadPlan(
            f"--from: {path} has something before the {{ of each line. Leave it out: "
            "journalctl -o cat, docker compose logs --no-log-prefix."
        )
    return first


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines that have something in them."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            while line := file.readline(LINE_CHARACTERS_MAX):
                if text := line.strip():
                    yield text
    except OSError as error:
        raise BadPlan(f"--from: {path} cannot be read: {error.strerror}.") from None


def _bounded(requests: Iterable[TrafficRequest], path: Path) -> list[TrafficRequest]:
    kept: list[TrafficRequest] = []
    for request in requests:
        if len(kept) >= REQUESTS_MAX:
            raise BadPlan(f"--from: {path} has more than {REQUESTS_MAX:,} requests. Cut it.")
        kept.append(request)
    return kept


def _traffic(source: Source, requests: list[TrafficRequest], path: Path) -> Traffic:
    """Put requests in order and count time from the first."""
    if not requests:
        raise BadPlan(f"--from: {path} has no requests.")
    requests.sort(key=lambda request: request.at_s)
    first_s = requests[0].at_s
    moved = [replace(request, at_s=request.at_s - first_s) for request in requests]
    return Traffic(source, moved, [])


def _trace_lines(path: Path) -> Iterator[TrafficRequest]:
    decode = msgspec.json.Decoder(_TraceLine).decode
    for number, text in enumerate(_lines(path), 1):
        try:
            line = decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadPlan(f"--from: {path}, line {number}: {error}.") from None
        at_s = line.at_s if line.timestamp is None else line.timestamp / 1000
        prompt = line.prompt_tokens if line.input_length is None else line.input_length
        output = line.output_tokens if line.output_length is None else line.output_length
        if at_s is None or not 0 <= at_s < 1e12:
            raise BadPlan(f"--from: {path}, line {number}: no timestamp (milliseconds) or at_s.")
        if prompt is None:
            raise BadPlan(f"--from: {path}, line {number}: no input_length or prompt_tokens.")
        if output is None:
            raise BadPlan(f"--from: {path}, line {number}: no output_length or output_tokens.")
        if not (0 <= prompt <= TOKENS_MAX and 0 <= output <= TOKENS_MAX):
            raise BadPlan(f"--from: {path}, line {number}: tokens from 0 to {TOKENS_MAX:,}.")
        yield TrafficRequest(
            at_s, line.model, line.user, line.priority, prompt_tokens=prompt, output_tokens=output
        )


# -- access logs


def _read_access_log(path: Path) -> Traffic:
    decode = msgspec.json.Decoder(AccessRecord).decode
    found: list[tuple[TrafficRequest, AccessRecord]] = []
    skipped = 0
    for text in _lines(path):
        try:
            record = decode(text)
            request = _from_record(record)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            skipped += 1  # the gateway's own log may be in the same file
            continue
        if request is None:
            skipped += 1
        else:
            if len(found) >= REQUESTS_MAX:
                raise BadPlan(f"--from: {path} has more than {REQUESTS_MAX:,} requests. Cut it.")
            found.append((request, record))
    if not any(request.run_s and not request.job for request, _ in found):
        raise BadPlan(
            f"--from: {path} has no request that ran, in {len(found) + skipped:,} lines. Name an "
            "access log (standard output of forebay serve), or a trace: docs/planning.md."
        )
    found.sort(key=lambda pair: pair[0].at_s)
    first_s = found[0][0].at_s
    usual = Counter(request.model for request, _ in found if request.run_s).most_common(1)[0][0]
    requests = [
        replace(request, at_s=request.at_s - first_s, model=request.model or usual)
        for request, _ in found
    ]
    records = zip(requests, found, strict=True)
    recorded = [_recorded(request, record) for request, (_, record) in records if not request.job]
    return Traffic("access log", requests, recorded, skipped)


def _from_record(record: AccessRecord) -> TrafficRequest | None:
    """Return a line as a request; None of one that never was the queue's business.

    Raises ValueError for a line that no gateway has written.
    """
    if not record.id or record.outcome in NEVER_QUEUED:
        return None
    amounts = (record.waited_ms, record.first_byte_ms, record.run_ms, record.max_wait_ms,
               record.prompt_tokens, record.output_tokens, record.output_limit,
               record.request_bytes, record.arrived)  # fmt: skip
    if not all(0 <= amount < AMOUNT_MAX for amount in amounts):
        raise ValueError("an impossible amount")
    if not WEIGHT_MIN <= record.weight <= WEIGHT_MAX:
        raise ValueError("an impossible weight")
    run_s = record.run_ms / 1000 if record.node else 0.0
    ended_s = datetime.fromisoformat(record.time).timestamp()
    at_s = record.arrived or ended_s - run_s - record.waited_ms / 1000
    left = record.outcome == "cancelled" and not record.node
    return TrafficRequest(
        at_s,
        record.model,
        record.user_hash,
        record.priority or "normal",
        next(
            (name for start, name in FAMILIES.items() if record.route.startswith(start)), "openai"
        ),
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
        output_limit=record.output_limit,
        size_bytes=record.request_bytes,
        weight=record.weight,
        max_wait_s=record.max_wait_ms / 1000 if record.max_wait_ms else None,
        stream=record.stream,
        job=record.job,
        node=record.node,
        waited_s=record.waited_ms / 1000,
        first_byte_s=record.first_byte_ms / 1000,
        run_s=run_s,
        is_whole=record.outcome == "served" and record.attempt == 1,
        leaves_after_s=max(0.0, ended_s - at_s) if left else None,
    )


def _recorded(request: TrafficRequest, record: AccessRecord) -> RequestSample:
    """Return what became of it, in the form that replayed requests have."""
    return RequestSample(
        request.at_s,
        request.user,
        request.priority,
        "" if record.node else record.outcome,
        total_s=request.waited_s + request.run_s if record.node else None,
        wait_s=request.waited_s if record.node else None,
        tokens_in=request.prompt_tokens,
        tokens_out=request.output_tokens,
        queued=record.queued,
        node=record.node,
    )


# -- other users, more users


def with_users(traffic: Traffic, users: Mix, seed: int) -> Traffic:
    """Give requests whose user is not known one of these."""
    source = random.Random(f"{seed}/users")
    requests = [
        request if request.user else replace(request, user=users.draw(source))
        for request in traffic.requests
    ]
    return replace(traffic, requests=requests)


def scaled(traffic: Traffic, factor: float, seed: int) -> list[TrafficRequest]:
    """Return the requests of so many times the users, each copy behaving as its original.

    A copy's requests come as its original's do, moved by up to a minute, the same for all of them;
    what is moved over the end comes in at the beginning. Of a broken factor, and of one below 1,
    as many users are taken as make up that share of the requests, as far as whole users can.
    Requests without a user, as traces have them, are of many: that share of them is drawn.
    """
    whole, part = int(factor), factor - int(factor)
    if factor == 1.0:
        return traffic.requests
    if len(traffic.requests) * factor > REQUESTS_MAX:
        raise BadPlan(f"--scale {factor:g}: more than {REQUESTS_MAX:,} requests.")
    source = random.Random(f"{seed}/scale")
    by_user: dict[str, list[TrafficRequest]] = {}
    for request in traffic.requests:
        by_user.setdefault(request.user, []).append(request)
    some = _some_users(by_user, part, source)
    span_s = traffic.span_s or 1.0
    made: list[TrafficRequest] = []
    for number in range(1, whole + 2):
        for user, requests in (by_user if number <= whole else some).items():
            if number == 1:
                made += requests
                continue
            shift_s = source.uniform(-1.0, 1.0) * min(SHIFT_S_MAX, span_s / 20)
            made += (
                replace(request, user=f"{user}~{number}", at_s=(request.at_s + shift_s) % span_s)
                for request in requests
            )
    if not made:
        raise BadPlan(f"--scale {factor:g} leaves no user. Raise it.")
    made.sort(key=lambda request: request.at_s)
    return made


def _some_users(
    by_user: dict[str, list[TrafficRequest]], part: float, source: random.Random
) -> dict[str, list[TrafficRequest]]:
    """Return users drawn at random that made about that part of the requests, and what they made.

    Requests without a user are drawn one by one.
    """
    taken = {"": [request for request in by_user.get("", ()) if source.random() < part]}
    users = [user for user in by_user if user]
    wanted, count = part * sum(len(by_user[user]) for user in users), 0
    source.shuffle(users)
    for user in users:
        if count + len(by_user[user]) / 2 < wanted:
            taken[user] = by_user[user]
            count += len(by_user[user])
    return taken
