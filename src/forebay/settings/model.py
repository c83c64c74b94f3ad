"""The one settings model: every section, and what must hold between them."""

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict, model_validator

from forebay.settings.errors import SettingsProblem, refusals
from forebay.settings.fleet import CoordinationSettings, GuardSettings
from forebay.settings.jobs import JobsSettings
from forebay.settings.keys import KeySettings
from forebay.settings.models import ModelsSettings
from forebay.settings.nodes import NodeSettings
from forebay.settings.queue import QueueSettings, RetrySettings
from forebay.settings.server import ServerSettings
from forebay.settings.sessions import SessionsSettings


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
    """API keys, one block each. None: whoever reaches the gateway may use it."""

    models: ModelsSettings = ModelsSettings()
    """Other names for models, and what stands in for one that is missing."""

    sessions: SessionsSettings = SessionsSettings()
    """Conversations that the gateway holds."""

    jobs: JobsSettings = JobsSettings()
    """Durable work with nobody connected."""

    guard: GuardSettings = GuardSettings()
    """The guard that stands beside a backend on its own machine."""

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
        ]
        if problems:
            raise refusals(problems)
        return self

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
