"""`[queue]` and `[retry]`: how requests wait, and how often they are tried on another node."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from forebay.core import Options
from forebay.settings.errors import SettingsProblem, refusal, refusals
from forebay.settings.section import (
    Amount,
    AmountAboveZero,
    AmountOrForever,
    Count,
    CountFromOne,
    Flag,
    Section,
    Status,
)

PROFILES: Mapping[str, Mapping[str, object]] = {
    "standard": {},
    "nexus": {
        "full_status": 503,
        "timeout_status": 503,
        "max_wait_seconds": 30.0,
        "stream": "reject",
        "when_full": "reject",
        "fairness": "fifo",
        "priorities": ("high", "normal"),  # a class that is not listed is read as normal
    },
}
"""What a profile sets where the operator did not."""

PRIORITY_NAME = re.compile(r"[a-z0-9._-]{1,64}")
PRIORITIES_MAX = 16  # each class is a label of several metrics

KEY_OF_OPTION = {
    "enabled": "enabled",
    "max_size": "max_size",
    "bytes_max": "max_bytes",
    "per_user_max": "max_per_user",
    "when_full": "when_full",
    "wait_s_max": "max_wait_seconds",
    "queue_streams": "stream",
    "priorities": "priorities",
    "class_order": "priority",
    "class_weights": "weights",
    "aging_s": "aging_seconds",
    "fairness": "fairness",
    "swap_wait_s": "swap_wait_seconds",
    "swap_share": "swap_share",
    "offline_wait_s": "offline_wait_seconds",
}
"""Which key of ours each option of the core comes from."""


def _priorities(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names) or not 1 <= len(names) <= PRIORITIES_MAX:
        raise refusal(
            f"is not a list of 1 to {PRIORITIES_MAX} different names",
            'write the classes once each, most urgent first: ["high", "normal", "low"]',
        )
    if any(PRIORITY_NAME.fullmatch(name) is None for name in names):
        raise refusal(
            "has a name that no request could ask for: headers are read in lower case",
            "write 1 to 64 lower-case letters, digits, dots, dashes and underscores each",
        )
    if "normal" not in names:
        raise refusal(
            'has no "normal", which is the class of requests without a priority',
            'add "normal" where such requests belong',
        )
    return names


class QueueSettings(Section):
    """How much may wait, how long, and in what order."""

    enabled: Flag = True
    """Whether requests may wait at all; false answers 503 `queue_disabled` when no slot is free."""

    max_size: Count = 100
    """Requests that may wait before new ones are refused; 0 turns waiting off."""

    max_bytes: Count = 268_435_456
    """Memory for the bodies of all requests together, in bytes (256 MiB); each counts from its
    head until its answer begins. When it is used up, uploads are not read further; with 0 only
    requests without a body can wait."""

    max_per_user: Count = 0
    """Requests one user may have waiting; 0 is no limit per user."""

    max_wait_seconds: AmountOrForever = 60.0
    """Longest a request may wait, in seconds; running does not count. 0 allows no wait, inf is no
    limit. One that would wait over twice as long is refused at once, but for `profile` "nexus"."""

    full_status: Status = 429
    """HTTP status when the queue is full; 400 to 599."""

    timeout_status: Status = 504
    """HTTP status when a request waited longer than `max_wait_seconds`; 400 to 599."""

    profile: Literal["standard", "nexus"] = "standard"
    """A set of defaults in one word. "nexus": `full_status` and `timeout_status` 503,
    `max_wait_seconds` 30, `stream` and `when_full` "reject", `fairness` "fifo", `priorities`
    without "low", which is then read as normal. Keys that are set win over the profile."""

    when_full: Literal["class", "displace", "reject"] = "class"
    """Whom a full queue makes room for: "class" lets a request of a higher class take the place of
    the newest one of the lowest class's largest holder, "displace" also one of a user with at least
    two places fewer; "reject" refuses every newcomer."""

    stream: Literal["queue", "reject"] = "queue"
    """Whether streams wait like anything else, or are answered 503 when no slot is free."""

    keepalive_seconds: Amount = 15.0
    """How long a waiting stream's headers are held, and then the interval of its comments, in
    seconds; 0 holds them until the answer begins."""

    fairness: Literal["tokens", "round_robin", "fifo"] = "tokens"
    """Who is next inside a class: "tokens" shares by the tokens that users' requests take,
    "round_robin" by their number, and "fifo" keeps the order of arrival."""

    priorities: Annotated[tuple[str, ...], AfterValidator(_priorities)] = ("high", "normal", "low")
    """The classes, most urgent first, in lower case; "normal" must be one of them. A request that
    asks for a class not listed here is read as normal."""

    priority: Literal["strict", "weighted"] = "strict"
    """How classes share: "strict" runs every urgent request first, "weighted" gives each class its
    share of `weights`."""

    weights: Mapping[str, AmountAboveZero] = Field(default={})
    """Shares of the classes when `priority` is "weighted"; each above 0. A class not named has the
    default of its rank: 8, 4, then 1."""

    aging_seconds: AmountOrForever = 0.0
    """A request counts one class higher for each such interval waited, in seconds; 0 and inf are
    never."""

    swap_wait_seconds: AmountOrForever = 15.0
    """How long requests for a model that is not in memory wait at least for the model that is, in
    seconds, unless they are about to time out; with 0 only `swap_share` counts, with inf only the
    wait limits."""

    swap_share: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.1
    """Share of a node's time that loading may take while requests wait for the model in memory,
    above 0 and at most 1: a model that takes S seconds to load serves for
    S * (1 / swap_share - 1) before another replaces it, nine times its load time with 0.1, or for
    1.5 S where requests are about to time out. The load of your requests and this share together
    must stay below 1."""

    offline_wait_seconds: AmountOrForever = 30.0
    """How long requests still wait for a model after its nodes went offline, or for a node that has
    never answered, in seconds; later requests get 503 `no_node` at once, waiting ones keep
    waiting. 0 waits for no node, inf for every one."""

    first_byte_seconds: AmountAboveZero = 120.0
    """Longest time to the first byte of a stream once it runs, in seconds; above 0."""

    run_seconds: AmountAboveZero = 600.0
    """Longest a request may run, in seconds; above 0."""

    chunk_gap_seconds: AmountAboveZero = 60.0
    """Longest gap between two pieces of a stream, in seconds; above 0."""

    answer_max_bytes: CountFromOne = 268_435_456
    """Largest answer that is collected before it is passed on, in bytes (256 MiB). At least 1."""

    @model_validator(mode="before")
    @classmethod
    def _apply_profile(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        profile = given.get("profile")
        return {**PROFILES.get(profile, {}), **given} if isinstance(profile, str) else given

    @model_validator(mode="after")
    def _check_consistency(self) -> "QueueSettings":
        problems = [_as_key(text) for text in self.options().problems()]
        if self.weights and self.priority == "strict":
            problems.append(
                SettingsProblem(
                    "weights",
                    'have no effect while queue.priority is "strict"',
                    'write priority = "weighted", or remove the weights',
                )
            )
        if problems:
            raise refusals(problems)
        return self

    def options(self) -> Options:
        """Return what the scheduler core wants to know."""
        return Options(
            enabled=self.enabled,
            max_size=self.max_size,
            bytes_max=self.max_bytes,
            per_user_max=self.max_per_user,
            when_full=self.when_full,
            wait_s_max=self.max_wait_seconds,
            refuses_long_lines=self.profile != "nexus",
            queue_streams=self.stream == "queue",
            priorities=self.priorities,
            class_order=self.priority,
            class_weights=dict(self.weights),
            aging_s=self.aging_seconds,
            fairness=self.fairness,
            swap_wait_s=self.swap_wait_seconds,
            swap_share=self.swap_share,
            offline_wait_s=self.offline_wait_seconds,
        )


def _as_key(text: str) -> SettingsProblem:
    """Turn one problem of the core's options into one of the key that it came from."""
    option, _, wrong = text.partition(" ")
    field, dot, entry = option.partition(".")
    instead = "write a smaller number"
    if field == "class_weights":
        instead = "name one of queue.priorities, with a weight above 0"
    return SettingsProblem(KEY_OF_OPTION.get(field, field) + dot + entry, wrong, instead)


class RetrySettings(Section):
    """How often a request is tried again when its node fails before the first answer byte."""

    attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = 3
    """How often one request may be sent to a node in all; 1 never sends it again. A kept-alive
    connection that the node closes after the request was sent counts, but is not a failure."""

    budget: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.1
    """Share of the requests of the last 10 seconds that may be retries, from 0 to 1; ten are always
    allowed, even at 0, unless `attempts` is 1."""

    stream: Literal["error", "buffer"] = "error"
    """What happens to a stream whose node dies midway: "error" ends it with an error, "buffer"
    collects each answer first, so that it can be repeated elsewhere unnoticed."""
