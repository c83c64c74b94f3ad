"""Compile the hot path with mypyc into `build/compiled`: the same package, several times faster.

The sources stay what they are, typed Python; mypyc (part of mypy) turns the modules listed here
into one C extension. The rest of the package is copied beside it, so that

    PYTHONPATH=build/compiled .venv/bin/forebay serve

runs the compiled gateway. It needs a C compiler and Python's headers. Nothing is written into
`src`: an extension there would go on being used after its source has changed. `hatch_build.py` puts
the same extensions into wheels.

| Option | |
|---|---|
| `--if-changed` | compile only where the sources have changed |
| `--unoptimised` | without the C optimiser, into `build/compiled-unoptimised`: for tests |
| `--fresh` | print the folder if it is made of these sources, and compile nothing |
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LIMIT_S = 1800
"""How long compiling may take on a very slow machine."""

VALUES = {"events", "actions", "options", "snapshot"}
"""Modules of the core that define plain values, which msgspec makes and mypyc cannot."""

HOT = {
    "coordination": ("in_process", "replica", "roles", "serial_executor"),
    "coordination/follower": (
        "borrowed_slots", "follower", "loan_reports", "local_ticket", "wait_limits",
    ),
    "coordination/leader": (
        "decisions", "deferred_decisions", "leader", "lending", "members", "tickets",
    ),
    "coordination/protocol": ("wire_ids",),
    "relay": (
        "answer", "attempt", "call", "exchange", "family", "fields", "forms", "prefix", "relay",
        "retries", "stream_gaps",
    ),
    "wire": (
        "body", "budget", "client", "connection", "deadlines", "heads", "incoming_head", "io_batch",
        "pool", "server", "upload",
    ),
    "nodes": ("backend", "health", "registry"),
    "gateway/hot": (
        "accounting", "admission", "callers", "client_sink", "ended", "ended_stream", "front",
        "record_maker", "user_hash",
    ),
    "gateway/records": ("usage_counter",),
}  # fmt: skip
"""What every request passes through, beside the core."""

LEVEL = "1"
"""Of the C optimiser: measured, 2 and 3 gain nothing and take 30 s of CPU time more."""
C_OPTIONS = ("-fvisibility=hidden", "-w")
"""Files of one extension call each other directly; warnings of generated code take their time."""

TYPING = ("--config-file=", "--ignore-missing-imports")
"""Options of mypy: `make check` holds the types; here only what they say matters."""


class CannotCompile(Exception):
    """Why there is no compiled build: one line, then what the tools said."""


def modules() -> list[str]:
    """Return the files to compile, relative to the target."""
    core = sorted((ROOT / "src" / "forebay" / "core").glob("*.py"))
    names = [f"core/{path.name}" for path in core if path.stem not in {*VALUES, "__init__"}]
    names += [f"{package}/{name}.py" for package, listed in HOT.items() for name in listed]
    return [f"forebay/{name}" for name in names]


def check_compiler() -> None:
    """Raise CannotCompile where there is no C compiler that knows Python's headers."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")  # noqa: TID251
    command = [*compiler, "-fsyntax-only", "-I", sysconfig.get_path("include"), "-x", "c", "-"]
    try:
        tried = subprocess.run(
            command, input="#include <Python.h>", capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompile(f"there is no C compiler ({compiler[0]})") from error
    if tried.returncode != 0:
        why = f"{compiler[0]} cannot compile with Python's headers"
        raise CannotCompile(f"{why}\n{tried.stderr[-2000:]}")


def has_compiler() -> bool:
    """Say whether compiling is possible here."""
    try:
        check_compiler()
    except CannotCompile:
        return False
    return True


def sources_hash() -> str:
    """Return what a build depends on, as one number."""
    found = hashlib.sha256(f"{sys.version} {sysconfig.get_config_var('EXT_SUFFIX')}".encode())
    source = ROOT / "src" / "forebay"
    paths = (path for path in sorted(source.rglob("*")) if path.suffix not in {".pyc", ".so"})
    for path in (Path(__file__), *filter(Path.is_file, paths)):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


class CompiledPackage:
    """The package with its hot path compiled, in a folder of its own."""

    def __init__(self, *, optimised: bool) -> None:
        self.folder = BUILD / ("compiled" if optimised else "compiled-unoptimised")
        self._level = LEVEL if optimised else "0"
        self._mark = self.folder / "sources.sha256"

    def is_fresh(self) -> bool:
        """Say whether it is there, and made of the sources as they are."""
        return self._mark.exists() and self._mark.read_text() == sources_hash()

    def make(self, *, if_changed: bool) -> Path:
        """Copy the package and compile what is hot; return where. Raises CannotCompile."""
        check_compiler()
        if importlib.util.find_spec("mypyc") is None or not importlib.util.find_spec("setuptools"):
            raise CannotCompile("mypy and setuptools are not installed")
        BUILD.mkdir(exist_ok=True)
        with (BUILD / "compiling.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one makes it, others wait for that
            if not (if_changed and self.is_fresh()):
                self._make()
        return self.folder

    def _make(self) -> None:
        wanted = sources_hash()
        shutil.rmtree(self.folder, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / "src" / "forebay", self.folder / "forebay", ignore=ignored)
        command = [sys.executable, str(Path(__file__)), f"--extensions={self._level}"]
        try:
            done = subprocess.run(
                command, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise CannotCompile(f"compiling took more than {LIMIT_S} s") from error
        if done.returncode != 0:
            said = f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
            raise CannotCompile(f"compiling failed; the log of the build says how\n{said}")
        for remains in ("build", ".mypy_cache"):
            shutil.rmtree(self.folder / remains, ignore_errors=True)
        self._mark.write_text(wanted)


def usable_cpus() -> int:
    """Return how many CPUs this program may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def joined(sources: list[str], count: int) -> list[str]:
    """Return so many C files that include all of these, if there are more, each about as large.

    The headers, half a megabyte, are then read once for each of them and not for each module.
    """
    if len(sources) <= count:
        return sources
    units: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for path in sorted(sources, key=os.path.getsize, reverse=True):
        smallest = sizes.index(min(sizes))
        units[smallest].append(path)
        sizes[smallest] += os.path.getsize(path)
    files = [Path(sources[0]).with_name(f"joined_{number}.c") for number in range(count)]
    for file, unit in zip(files, units, strict=True):
        file.write_text("".join(f'#include "{Path(path).resolve()}"\n' for path in unit))
    return [str(file) for file in files]


def make_extensions(level: str) -> None:
    """Compile the package in the current folder, side by side on all CPUs.

    All modules make one extension: several would have to go through the interpreter to call each
    other.
    """
    from mypyc.build import mypycify
    from setuptools import setup  # type: ignore[import-untyped]
    from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]

    class ParallelBuild(build_ext):  # type: ignore[misc] # setuptools has no types
        """Setuptools can only build several extensions side by side, not the files of one."""

        def build_extensions(self) -> None:
            compile_files = self.compiler.compile

            def compile_side_by_side(sources: list[str], **options: object) -> list[str]:
                units = joined(sources, 2 * usable_cpus())
                with ThreadPoolExecutor(usable_cpus()) as pool:
                    made = pool.map(lambda path: compile_files([path], **options), units)
                    return [path for paths in made for path in paths]

            self.compiler.compile = compile_side_by_side
            super().build_extensions()

    options = [*TYPING, *modules()]
    gc.disable()  # it frees nothing here, and looking for it is a fifth of mypyc's time
    extensions = mypycify(
        options, opt_level=level, debug_level="0", multi_file=True, group_name="forebay"
    )
    gc.enable()
    for extension in extensions:
        extension.extra_compile_args = [*extension.extra_compile_args, *C_OPTIONS]
    setup(
        name="forebay-compiled",
        packages=[],
        ext_modules=extensions,
        cmdclass={"build_ext": ParallelBuild},
        script_args=["--quiet", "build_ext", "--inplace"],
    )


def main(options: list[str]) -> None:
    """Do what the options say; the module's text has them."""
    levels = [option.partition("=")[2] for option in options if option.startswith("--extensions=")]
    package = CompiledPackage(optimised="--unoptimised" not in options)
    if levels:
        make_extensions(levels[0])
    elif "--fresh" in options:
        sys.stdout.write(str(package.folder) if package.is_fresh() else "")
    else:
        try:
            package.make(if_changed="--if-changed" in options)
        except CannotCompile as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
