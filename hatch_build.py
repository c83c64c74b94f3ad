"""A wheel with the hot path compiled: `make wheel`, or COMPILE_HOT_PATH=1 and any wheel builder.

Without the variable, and for editable installs, the wheel is plain Python.
"""

import os
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent


class CompiledHotPath(BuildHookInterface):  # type: ignore[type-arg] # hatchling's own Any
    """Puts the extensions that `tools/compile.py` makes into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, where that is asked for."""
        if version == "editable" or not os.environ.get("COMPILE_HOT_PATH"):  # noqa: TID251
            return
        runpy.run_path(str(ROOT / "tools" / "compile.py"), run_name="__main__")
        compiled = ROOT / "build" / "compiled"
        for extension in compiled.rglob("*.so"):
            build_data["force_include"][str(extension)] = str(extension.relative_to(compiled))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
