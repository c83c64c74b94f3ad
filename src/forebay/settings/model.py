"""The one settings model: every section, and what must hold between them."""

import hashlib
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from math import isinf
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from forebay.settings.addresses import (
    DatabaseUrl,
    Host,
    HttpRootOrNothing,
    Network,
    WebhookUrl,
    WebOrigin,
    split_url,
)
from forebay.settings.errors import SettingsError, SettingsProblem, refusal, refusals
from forebay.settings.keys import KeySettings
from forebay.settings.nodes import NodeSettings
from forebay.settings.places import default_database
from forebay.settings.queue import QueueSettings, RetrySettings
from forebay.settings.section import (
    Amount,
    AmountAboveZero,
    Count,
    CountFromOne,
    Flag,
    Names,
    Section,
    Text,
    Variable,
)
from forebay.settings.store_url import BadStoreUrl, parse_store_url

NO_LIMIT = 0
MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
WILDCARDS = ("0.0.0.0", "::", "")
NAME_DIGITS = 8
WORKERS_MAX = 256


def _workers(given: object) -> object:
    if given == "auto" or (type(given) is int and 1 <= given <= WORKERS_MAX):
        return given
    raise refusal(
        'is neither a number of processes nor "auto"',
        f'write a whole number from 1 to {WORKERS_MAX}, or "auto" for as many as there are CPUs',
    )


class ServerSettings(Section):
    """Where the gateway listens, and what a connection may cost."""

    host: Host = "127.0.0.1"
    """Address or host name to listen on. The default is reached from this machine only;
    "0.0.0.0" is every network, and then keys are a good idea."""

    port: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 7800
    """TCP port to listen on; 0 takes a free one and prints it."""

    body_max_bytes: CountFromOne = 33_554_432
    """Largest request body, in bytes (32 MiB: a long conversation with a few images); a larger
    one is answered 413. At least 1."""

    header_seconds: AmountAboveZero = 10.0
    """Longest time for the head of a request to arrive, in seconds; above 0."""

    body_seconds: AmountAboveZero = 60.0
    """Longest time for the body of a request to arrive, in seconds; above 0."""

    idle_seconds: AmountAboveZero = 75.0
    """How long an idle connection stays open, in seconds; above 0. 75 is a little more than the 60
    of most proxies."""

    write_seconds: AmountAboveZero = 30.0
    """How long a client may not read its answer before it is disconnected, in seconds; above 0."""

    connections_max: CountFromOne = 10_000
    """Connections open at once; more are refused. At least 1. Each of several workers takes an
    equal part."""

    workers: Annotated[int | Literal["auto"], BeforeValidator(_workers)] = 1
    """Processes that share the port and the one queue: a number, or "auto" for as many as there
    are CPUs to use. Needs no store, and excludes `coordination.url`."""

    shutdown_seconds: Amount = 30.0
    """Time that running requests get to finish after a stop signal, in seconds; 0 ends them."""

    allowed_hosts: tuple[Host, ...] = ()
    """Names and addresses taken as `Host`, without ports. Empty: a gateway that listens on loopback
    takes loopback names only, another takes any."""

    cors_origins: tuple[WebOrigin, ...] = ()
    """Web origins whose pages may call the gateway, such as "https://chat.example"; "*" is every
    one. Empty: none."""

    trusted_proxies: tuple[Network, ...] = ()
    """Addresses or networks of proxies whose `X-Forwarded-For` is trusted. Empty: none."""

    tls_cert: str = ""
    """File with the TLS certificate chain, in PEM; together with `tls_key`. Empty: no TLS."""

    tls_key: str = ""
    """File with the private key of `tls_cert`, in PEM. Empty: no TLS."""

    public_status: Flag = False
    """Whether `/metrics`, `/events` and `/v1/queue` answer without a key where keys are set."""

    access_log: Flag = True
    """Whether each request is logged in one line; never with its text."""

    def worker_count(self) -> int:
        """Return how many processes serve; `"auto"` is as many as there are CPUs to use."""
        if self.workers != "auto":
            return self.workers
        usable = getattr(os, "sched_getaffinity", None)  # not on every system
        return min(WORKERS_MAX, len(usable(0)) if usable else os.cpu_count() or 1)

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "ServerSettings":
        if bool(self.tls_cert) != bool(self.tls_key):
            missing, given = ("tls_key", "tls_cert") if self.tls_cert else ("tls_cert", "tls_key")
            raise refusals(
                [
                    SettingsProblem(
                        missing, f"is missing while {given} is set", "set both, or neither"
                    )
                ]
            )
        return self


class ModelsSettings(Section):
    """Other names for models, and fallbacks."""

    aliases: Mapping[Text, Text] = Field(default={})
    """Names that clients may use, and the model each stands for: { "gpt-4o" = "llama3.1:8b" }. An
    alias may stand for another alias, but not for itself."""

    fallbacks: Mapping[Text, Names] = Field(default={})
    """Models to take, in order, when no node knows or can serve the one asked for:
    { "llama3.1:70b" = ["llama3.1:8b"] }. They must not lead back to where they started."""

    @model_validator(mode="after")
    def _leads_somewhere(self) -> "ModelsSettings":
        aliases = {name: (target,) for name, target in self.aliases.items()}
        problems = list(_loops("aliases", aliases))
        if not problems:
            steps = {
                name: aliases.get(name, ()) + self.fallbacks.get(name, ())
                for name in (*self.aliases, *self.fallbacks)
            }
            problems = list(_loops("fallbacks", steps))
        if problems:
            raise refusals(problems)
        return self


def _loops(field: str, steps: Mapping[str, tuple[str, ...]]) -> Iterable[SettingsProblem]:
    """Yield a problem for the first loop there is; no recursion, for a chain may be long."""
    done: set[str] = set()
    for start in steps:
        path: dict[str, None] = {}  # in order of the walk
        stack = [(start, True)]
        while stack:
            name, entering = stack.pop()
            if not entering:
                del path[name]
                done.add(name)
            elif name in path:
                loop = [*list(path)[list(path).index(name) :], name]
                yield SettingsProblem(
                    field, f"go in a loop: {' -> '.join(loop)}", "remove one of these steps"
                )
                return
            elif name not in done:
                path[name] = None
                stack.append((name, False))
                stack.extend((target, True) for target in reversed(steps.get(name, ())))


def _cap(given: object) -> int:
    """Return the cap as a whole number; infinity, and 0, are no limit."""
    if isinstance(given, str) and given.strip().lower() in ("inf", "+inf", "infinity"):
        return NO_LIMIT
    if isinstance(given, float) and given >= 0:
        if isinf(given):
            return NO_LIMIT
        given = int(given) if given.is_integer() else given
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise refusal(
            "is not a whole number of at least 0", "write one, such as 5; 0 and inf are no limit"
        )
    return given


Cap = Annotated[
    int,
    BeforeValidator(_cap),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "inf"}]}),
]


class SessionsSettings(Section):
    """Conversations that the gateway holds."""

    max_pending_prompts: Cap = Field(default=5, examples=[5])
    """Prompts one session may have pending, the running one included; 0 and inf are no limit.
    Negative, fractional and not-a-number values are refused."""

    prompt_deadline_ms: Count = 0
    """Longest time from accepting a prompt to the end of its turn, in milliseconds; 0 is no
    deadline. A prompt may ask for less, not for more."""

    max_sessions: CountFromOne = 1000
    """Sessions held at once; more are answered 503. At least 1. Of gateways that share a queue,
    each holds that many."""

    idle_seconds: AmountAboveZero = 86_400.0
    """How long an idle session is kept, in seconds (a day); above 0."""

    database: DatabaseUrl = Field(default="", repr=False)
    """Database that the sessions are kept in, as a URL. Empty: beside the jobs, which is the same
    PostgreSQL, or another SQLite file (`forebay.sessions.db` beside `forebay.db`). A file has one
    gateway at a time; a PostgreSQL database has one, or all those that share a queue
    (`coordination.url`)."""


def _module(name: str) -> str:
    if MODULE.fullmatch(name) is None:
        raise refusal("is not the name of a Python module", 'write one such as "app.tasks"')
    return name


class JobsSettings(Section):
    """Durable jobs, which need no connected client."""

    database: Annotated[DatabaseUrl, AfterValidator(lambda url: url or default_database())] = Field(
        default="", repr=False, validate_default=True
    )
    """Database that the jobs are kept in, as a URL: SQLite for one gateway, PostgreSQL for several.
    Empty: `./forebay.db` where that file exists, else `forebay.db` in `$STATE_DIRECTORY` (systemd
    sets it), else in `$XDG_STATE_HOME/forebay`, by default `~/.local/state/forebay`."""

    files_folder: Text | Literal[""] = ""
    """Folder of uploaded files and of what batches answer. Empty: beside the SQLite file, or in
    PostgreSQL itself. Gateways on one PostgreSQL must share the folder."""

    max_queue_depth: CountFromOne = 500
    """Jobs of one type that may be queued, without the running one; more fail at once with 429. At
    least 1."""

    bypass_workers: CountFromOne = 32
    """Jobs of task types without a model (`llm=False`) that run at once, all such types together;
    more are queued, up to `max_queue_depth` of each type. At least 1."""

    modules: tuple[Annotated[str, AfterValidator(_module)], ...] = ()
    """Python modules to import for the task types they register."""

    vram_budgets: Mapping[Text, Amount] = Field(default={})
    """GPU memory that a task type needs, in GB, by type; over what its code says. 0 needs none."""

    available_vram_gb: Amount = 0.0
    """GPU memory that jobs may use, in GB; 0 asks the GPUs, and is no limit where there is none."""

    vram_refresh_seconds: AmountAboveZero = 10.0
    """How often the GPUs are asked for their free memory, in seconds; above 0."""

    max_type_wait_seconds: Amount = 300.0
    """Longest a task type waits behind another, in seconds, before it goes first; 0 lets types take
    turns after every job."""

    on_interrupt: Literal["fail", "retry"] = "fail"
    """What happens to a job that was running when the program stopped: "fail", or "retry" up to
    `attempts`."""

    attempts: CountFromOne = 3
    """Times one job is tried in all, the first included. At least 1."""

    lease_seconds: Annotated[AmountAboveZero, Field(ge=1, le=86_400)] = 30.0
    """How long a worker keeps a job without a heartbeat before another may take it, in seconds
    (PostgreSQL only); 1 to 86400."""

    retention_days: Count = 30
    """Days after which ended jobs, ended batches and files that no batch refers to are deleted; 0
    keeps everything."""

    webhook_url: WebhookUrl = ""
    """URL to which every ended job and batch is posted. Empty: no webhooks."""

    webhook_secret_env: Variable = ""
    """Environment variable with the secret that webhooks are signed with. Empty: not signed."""


class UsageSettings(Section):
    """What is counted for each key, user and model."""

    retention_days: CountFromOne = 30
    """Days for which usage is kept, by the hour, in the database of the jobs. At least 1."""


def _store(url: str) -> str:
    if url:
        try:
            parse_store_url(url)
        except BadStoreUrl as error:
            raise refusal(error.wrong, error.instead) from None
    return url


StoreUrl = Annotated[str, AfterValidator(_store)]


class GuardSettings(Section):
    """Guards: processes beside the backends."""

    token_env: Variable = ""
    """Environment variable with the token that guards (`forebay node`) register with. Empty: none
    may register."""


class CoordinationSettings(Section):
    """Several gateways that share one queue."""

    url: StoreUrl = Field(default="", repr=False)
    """Valkey or Redis server that the gateways share, as a URL: `redis://host:6379/0`, with TLS
    `rediss://`; through sentinels `redis+sentinel://host:26379,host:26379/service`. Empty: this
    gateway is the only one."""

    advertise: HttpRootOrNothing = ""
    """URL at which the other gateways reach this one. Its name among them, and in the ids of its
    sessions, is made from it: keep it the same over restarts. Empty: made of `server.host`,
    `server.port` and whether there is TLS; where the host is a wildcard, of this machine's name."""

    lease_seconds: AmountAboveZero = 5.0
    """How long a gateway stays the leader without a heartbeat, in seconds; above 0. A short lease
    detects a dead leader sooner, a long one survives a slow network."""


def replica_name(address: str) -> str:
    """Return the name of the gateway at an address: eight hexadecimal digits, always the same.

    >>> replica_name("http://10.0.0.1:7800"), replica_name("HTTP://10.0.0.1:7800/")
    ('d504ab54', 'd504ab54')
    """
    plain = address.strip().rstrip("/").lower()
    return hashlib.sha256(plain.encode()).hexdigest()[:NAME_DIGITS]


def advertised(
    server: ServerSettings,
    coordination: CoordinationSettings,
    port: int = 0,
    hostname: str | None = None,
) -> str:
    """Return the URL at which other gateways reach one; raises SettingsError where there is none.

    `port` is the one it listens on, where the system has chosen it (`server.port = 0`).
    """
    if coordination.advertise:
        return coordination.advertise
    number = port or server.port
    if not number:
        raise _unreachable("server.port = 0 leaves the port to the system")
    host = server.host
    if host in WILDCARDS:
        host = (socket.gethostname() if hostname is None else hostname).lower()
    scheme = "https" if server.tls_cert else "http"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{number}"
    if split_url(url) is None:
        raise _unreachable("this machine's own name is not one that others could ask for")
    return url


def _unreachable(why: str) -> SettingsError:
    wrong = f"is needed to share a queue: {why}"
    instead = 'write where the other gateways reach this one, such as "http://10.0.0.1:7800"'
    return SettingsError([SettingsProblem("coordination.advertise", wrong, instead)])


class Settings(BaseModel):
    """Everything an operator may choose. Frozen; built once, passed down in pieces."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, title="forebay.toml"
    )

    server: ServerSettings = ServerSettings()
    """Where the gateway listens, and what a connection may cost."""

    queue: QueueSettings = QueueSettings()
    """How much may wait, how long, and in what order."""

    retry: RetrySettings = RetrySettings()
    """How often a request is tried again when its node fails before the first answer byte."""

    nodes: tuple[NodeSettings, ...] = ()
    """The servers that run the models, one block each. None: Forebay looks for some on this
    machine, and else runs a small model itself."""

    keys: tuple[KeySettings, ...] = ()
    """API keys, one block each. None: anyone who can reach the gateway may use it."""

    models: ModelsSettings = ModelsSettings()
    """Other names for models, and fallbacks."""

    sessions: SessionsSettings = SessionsSettings()
    """Conversations that the gateway holds."""

    jobs: JobsSettings = Field(default_factory=JobsSettings)
    """Durable jobs, which need no connected client."""

    usage: UsageSettings = UsageSettings()
    """What is counted for each key, user and model."""

    guard: GuardSettings = GuardSettings()
    """Guards: processes beside the backends."""

    coordination: CoordinationSettings = CoordinationSettings()
    """Several gateways that share one queue."""

    @model_validator(mode="after")
    def _check_consistency(self) -> "Settings":
        problems = [
            *_twice("nodes", "name", [node.name for node in self.nodes]),
            *_twice("keys", "name", [key.name for key in self.keys]),
            *_twice("keys", "key_sha256", [key.key_sha256 for key in self.keys]),
            *_twice("keys", "key_env", [key.key_env for key in self.keys]),
            *self._unknown_priorities(),
            *self._two_ways_to_share(),
        ]
        if problems:
            raise refusals(problems)
        return self

    def _two_ways_to_share(self) -> Iterable[SettingsProblem]:
        if self.server.workers != 1 and self.coordination.url:
            yield SettingsProblem(
                "server.workers",
                "cannot be more than 1 while coordination.url is set",
                "write workers = 1 and start one gateway per core, each with its own port",
            )

    def _unknown_priorities(self) -> Iterable[SettingsProblem]:
        known = self.queue.priorities
        read_as_normal = ("low",) if self.queue.profile == "nexus" else ()
        for index, key in enumerate(self.keys):
            if key.max_priority not in (*known, *read_as_normal):
                yield SettingsProblem(
                    f"keys[{index}].max_priority",
                    f'is "{key.max_priority}", which is not one of queue.priorities',
                    f"write one of {', '.join(known)}",
                )


def _twice(section: str, field: str, values: Sequence[str]) -> Iterable[SettingsProblem]:
    """Yield a problem for each value that an earlier block has too; empty ones do not count."""
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if value and value in first:
            yield SettingsProblem(
                f"{section}[{index}].{field}",
                f"is the same as {section}[{first[value]}].{field}",
                "make them different, or remove one of the blocks",
            )
        first.setdefault(value, index)
