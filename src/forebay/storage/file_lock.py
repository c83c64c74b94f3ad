"""One runner for each SQLite file: a lock that the kernel releases when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from forebay.errors import NotAllowed


class FileLock:
    """Held from `take` to `release`, or to the end of the program, `kill -9` included.

    The file is not deleted: two programs could lock two files of the same name.
    """

    def __init__(
        self,
        database: str,
        suffix: str = ".runner",
        holder: str = "runner",
        remedy: str = "SQLite takes one; stop that one, or use PostgreSQL for several",
    ) -> None:
        self._database = database
        self._holder = holder
        self._remedy = remedy
        self._path = Path(os.path.realpath(database) + suffix)
        self._file: int | None = None

    def take(self) -> None:
        """Take the lock, unless we have it; raises NotAllowed when another has it."""
        if self._file is not None:
            return
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            raise NotAllowed(
                f"another {self._holder} (pid {pid or 'unknown'}) works on {self._database}: "
                f"{self._remedy}"
            ) from error
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file

    def release(self) -> None:
        """May be called twice."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)
