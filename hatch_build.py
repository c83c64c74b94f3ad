"""What `pip install .` and every wheel builder get: the hot path compiled, where that is possible.

It needs a C compiler and Python's headers. Where they are not there, or compiling fails, the wheel
is plain Python, which does the same; `forebay --version` says which it is, and why. Editable
installs are plain, and so is everything with COMPILE_HOT_PATH=0. COMPILE_HOT_PATH=unoptimised is
for tests.
"""

import contextlib
import os
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
REASON = ROOT / "build" / "plain.txt"
WANTED = os.environ.get("COMPILE_HOT_PATH", "1")  # noqa: TID251


class CompiledHotPath(BuildHookInterface):  # type: ignore[type-arg] # hatchling's own Any
    """Puts the extensions that `tools/compile.py` makes into the wheel."""

    def dependencies(self) -> list[str]:
        """Return what an isolated build needs: mypy, and the types of what we import."""
        try:
            _tool()["check_compiler"]()
        except Exception:  # then `initialize` will say why
            return []
        core = self.metadata.core
        return [*core.optional_dependencies["compile"], *core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the same sources have been compiled here. A failure is only told."""
        if version == "editable":
            return
        try:
            package = _tool()["CompiledPackage"](optimised=WANTED != "unoptimised")
            folder = package.make(if_changed=True)
        except Exception as error:  # whatever it is, installing goes on
            self._stay_plain(str(error) or repr(error), build_data)
            return
        for extension in folder.rglob("*.so"):
            build_data["force_include"][str(extension)] = str(extension.relative_to(folder))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _stay_plain(self, why: str, build_data: dict[str, Any]) -> None:
        """Say why; pip shows that with -v only, so that the package says it, too."""
        self.app.display_warning(f"plain Python, the hot path is not compiled: {why}")
        with contextlib.suppress(OSError):  # nothing can be written here: it stays unsaid
            REASON.parent.mkdir(exist_ok=True)
            REASON.write_text(why.partition("\n")[0])
            build_data["force_include"][str(REASON)] = "forebay/plain.txt"


def _tool() -> dict[str, Any]:
    """Return `tools/compile.py`, which is no package where the build runs."""
    if WANTED == "0":
        raise RuntimeError("COMPILE_HOT_PATH=0")
    return runpy.run_path(str(ROOT / "tools" / "compile.py"))
