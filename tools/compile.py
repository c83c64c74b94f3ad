"""Compile the hot path with mypyc into `build/compiled`: the same package, several times faster.

The sources stay what they are, typed Python; mypyc (part of mypy) turns the modules listed here
into one C extension. The rest of the package is copied beside it, so that

    PYTHONPATH=build/compiled .venv/bin/forebay serve

runs the compiled gateway. It needs a C compiler and Python's headers. Nothing is written into
`src`: an extension there would go on being used after its source has changed.

`--if-changed` compiles only where the sources have changed. `--unoptimised` leaves the C compiler's
optimiser out, into `build/compiled-unoptimised`: a minute less, for tests.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
OPTIMISES = "--unoptimised" not in sys.argv
TARGET = ROOT / "build" / ("compiled" if OPTIMISES else "compiled-unoptimised")
MARK = TARGET / "sources.sha256"
"""Of which sources the build is made."""

VALUES = {"events", "actions", "options", "snapshot"}
"""Modules of the core that define plain values, which msgspec makes and mypyc cannot."""

HOT = {
    "coordination": ("in_process", "replica", "serial_executor"),
    "coordination/follower": (
        "borrowed_slots", "follower", "loan_reports", "local_ticket", "wait_limits",
    ),
    "coordination/leader": (
        "deferred_rejections", "leader", "lending", "members", "tickets",
    ),
    "coordination/protocol": ("wire_ids",),
    "relay": (
        "answer", "call", "exchange", "fields", "forms", "relay", "retries", "stream_gaps",
    ),
    "wire": (
        "body", "budget", "client", "connection", "deadlines", "heads", "pool", "server",
        "write_batch",
    ),
    "nodes": ("backend", "health", "registry"),
    "gateway/hot": ("access_log", "accounting", "admission", "callers", "client_sink", "front"),
}  # fmt: skip
"""What every request passes through, beside the core."""

SETUP = """
from setuptools import setup
from mypyc.build import mypycify
extensions = mypycify({modules!r}, opt_level="{level}", debug_level="0")
for extension in extensions:
    extension.extra_compile_args.append("-Wno-misleading-indentation")
setup(name="forebay-compiled", packages=[], ext_modules=extensions)
"""
"""Looking for misleading indentation in the one C file of 37 MB would take gcc 80 of 110 s."""


def modules() -> list[str]:
    """Return the files to compile, relative to the target."""
    core = sorted((ROOT / "src" / "forebay" / "core").glob("*.py"))
    names = [f"core/{path.name}" for path in core if path.stem not in {*VALUES, "__init__"}]
    names += [f"{package}/{name}.py" for package, listed in HOT.items() for name in listed]
    return [f"forebay/{name}" for name in names]


def sources_hash() -> str:
    """Return what the build depends on, as one number."""
    found = hashlib.sha256(sys.version.encode())
    for path in (Path(__file__), *sorted((ROOT / "src").rglob("*.py"))):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def main() -> None:
    """Copy the package and compile what is hot; with `--if-changed`, only where it must be."""
    wanted = sources_hash()
    if "--if-changed" in sys.argv and MARK.exists() and MARK.read_text() == wanted:
        return
    shutil.rmtree(TARGET, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "src" / "forebay", TARGET / "forebay", ignore=ignored)
    (TARGET / "setup.py").write_text(SETUP.format(modules=modules(), level=3 if OPTIMISES else 0))
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=TARGET, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"compiling failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    shutil.rmtree(TARGET / "build", ignore_errors=True)
    (TARGET / "setup.py").unlink()
    MARK.write_text(wanted)


if __name__ == "__main__":
    main()
