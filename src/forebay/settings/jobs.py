"""`[jobs]`: durable work with nobody connected."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from forebay.settings.addresses import DatabaseUrl, WebhookUrl
from forebay.settings.errors import refusal
from forebay.settings.section import (
    Amount,
    AmountAboveZero,
    CountFromOne,
    Section,
    Text,
    Variable,
)

MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def _module(name: str) -> str:
    if MODULE.fullmatch(name) is None:
        raise refusal("is not the name of a Python module", 'write one such as "app.tasks"')
    return name


def _given(url: str) -> str:
    if not url:
        raise refusal("is empty", 'write "sqlite:///forebay.db" or "postgresql://host/name"')
    return url


class JobsSettings(Section):
    """Durable work with nobody connected."""

    database: Annotated[DatabaseUrl, AfterValidator(_given)] = Field(
        default="sqlite:///forebay.db", repr=False
    )
    """Database that the jobs are kept in, as a URL: SQLite for one gateway, PostgreSQL for
    several."""

    files_folder: Text | Literal[""] = ""
    """Folder of uploaded files and of what batches answer. Empty: beside the SQLite file, or in
    PostgreSQL itself. Gateways on one PostgreSQL must share the folder."""

    max_queue_depth: CountFromOne = 500
    """Jobs of one type that may be queued, the running one aside; more fail at once, and are
    answered 429. At least 1."""

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
    """What becomes of a job that was running when the program stopped: "fail", or "retry" up to
    `attempts`."""

    attempts: CountFromOne = 3
    """Times one job is tried in all, the first included. At least 1."""

    lease_seconds: Annotated[AmountAboveZero, Field(ge=1, le=86_400)] = 30.0
    """How long a worker holds a job without a sign of life before another may take it, in seconds
    (PostgreSQL only); 1 to 86400."""

    webhook_url: WebhookUrl = ""
    """Address that is told, by a POST, of every job and batch that has ended. Empty: nobody is."""

    webhook_secret_env: Variable = ""
    """Environment variable with the secret that webhooks are signed with. Empty: not signed."""
