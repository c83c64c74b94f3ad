"""What `forebay serve` was called with, as its workers are told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.settings import load_settings

if TYPE_CHECKING:
    from forebay.settings import Settings


@dataclass(frozen=True)
class ServeArguments:
    """The arguments that matter after the start."""

    config: str | None
    assignments: list[str]
    """Of `--set`."""
    flags: dict[str, Any]
    """Settings that have flags of their own, by their dotted names."""
    gguf: str | None
    self_check: bool
    simulate: bool = False
    """Run a simulated node, and look for no other."""

    def read(self) -> Settings:
        """Read the settings, for the first time or anew; raises SettingsError."""
        config = None if self.config is None else Path(self.config)
        return load_settings(config, self.assignments, flags=self.flags)

    @property
    def model_file(self) -> Path | None:
        return None if self.gguf is None else Path(self.gguf)

    def needs_default_nodes(self, settings: Settings) -> bool:
        """Say whether the gateway is told of no node, and expects none to register."""
        is_told = settings.nodes or settings.guard.token_env
        return self.simulate or self.gguf is not None or not is_told
