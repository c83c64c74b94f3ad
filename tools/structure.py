"""How much of the core has to be held in the head: what one event passes, circles, constants.

`python -m tools.structure` prints a table. Functions are counted by running them, since who calls
whom through a table or an attribute cannot be read from the source: those of `forebay.core` that
are called between `Scheduler.handle` with an `Arrived` or a `Finished` and its actions, without
lambdas and what stands inside expressions. *On a plain day* three users share two nodes of two
slots, by tokens; *in random days* the scenarios of `make sim` are played: classes, rates, caps,
swaps, failures. `--names` lists those of the plain day.

To count another state of the tree, give its folder and have it first on the path:
`PYTHONPATH=OTHER/src python -m tools.structure OTHER`.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import forebay.core
from forebay.core import Arrived, Finished, NodeChanged, Options, Route, Scheduler
from forebay.testing.simulation import Simulation, random_scenario
from tools.volume import large_classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import FrameType

    from forebay.core import Action, Event

ROOT: Final = Path(__file__).parent.parent
ARRIVALS: Final = 30
SEEDS: Final = 60
_NUMBERS: Final = (int, float)


# What one event passes


class Watched:
    """A scheduler that notes which functions of the core an arrival or an end passes."""

    def __init__(self, options: Options) -> None:
        self.functions: set[tuple[str, str]] = set()
        self._scheduler = Scheduler(options)
        self._folder = str(Path(forebay.core.__file__).parent)
        self.next_deadline_s = self._scheduler.next_deadline_s

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        if not isinstance(event, Arrived | Finished):
            return self._scheduler.handle(event, now_s)
        sys.setprofile(self._note)
        try:
            return self._scheduler.handle(event, now_s)
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, kind: str, _: object) -> None:
        code = frame.f_code
        if kind != "call" or code.co_name.startswith("<"):
            return
        if code.co_filename.startswith(self._folder):
            self.functions.add((code.co_filename, code.co_qualname))


def passed_on_a_plain_day() -> set[tuple[str, str]]:
    """Return the functions that arrivals and ends pass while some wait and others start."""
    core, running, now_s = Watched(Options(fairness="tokens")), [], 0.0
    for name in ("n0", "n1"):
        core.handle(NodeChanged(name, 2, ("m",)), now_s)
    for number in range(ARRIVALS):
        now_s += 0.5
        event = Arrived(f"r{number}", "m", user=f"u{number % 3}", prompt_tokens=100)
        running += _started(core.handle(event, now_s))
        if number % 3 == 2:
            now_s += 1.0
            running += _started(core.handle(Finished(running.pop(0), True, 100, 50), now_s))
    while running:
        now_s += 1.0
        running += _started(core.handle(Finished(running.pop(0), True, 100, 50), now_s))
    return core.functions


def _started(actions: Sequence[Action]) -> list[str]:
    return [action.id for action in actions if isinstance(action, Route)]


def passed_in_random_days(seeds: int) -> set[tuple[str, str]]:
    """Return the same of days with everything in them."""
    functions: set[tuple[str, str]] = set()
    for seed in range(seeds):
        scenario = random_scenario(seed)
        core = Watched(scenario.options)
        Simulation(scenario, seed, core).run()
        functions |= core.functions
    return functions


# Circles of imports


def imports(folder: Path, package: str) -> dict[str, set[str]]:
    """Return which modules of a package each of them imports, for types only as well.

    An import of a module through its package is one of the module; of anything else, of the
    package.
    """
    names = {
        ".".join((package, *path.relative_to(folder).with_suffix("").parts)): path
        for path in sorted(folder.rglob("*.py"))
    }
    paths = {name.removesuffix(".__init__"): path for name, path in names.items()}
    return {
        name: set(_imported(ast.parse(path.read_text()), paths.keys())) - {name}
        for name, path in paths.items()
    }


def _imported(tree: ast.AST, modules: Iterable[str]) -> Iterator[str]:
    known = set(modules)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from known & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            for alias in node.names:
                through = f"{node.module}.{alias.name}"
                yield from known & {through} or known & {node.module}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the modules that reach each other, the largest circle first.

    >>> circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}})
    [['b', 'c']]
    """
    reached = {name: _reached(graph, name) for name in graph}
    found = {
        tuple(sorted({other for other in reached[name] if name in reached[other]}))
        for name in graph
        if name in reached[name]
    }
    return [list(circle) for circle in sorted(found, key=lambda circle: (-len(circle), circle))]


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached


# Constants and classes


def constants(folder: Path) -> int:
    """Return how many names in capitals stand for a number, or for several, in its modules."""
    return sum(
        _is_constant(node)
        for path in folder.rglob("*.py")
        for node in ast.parse(path.read_text()).body
    )


def _is_constant(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        targets: list[ast.expr] = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return False
    named = all(isinstance(one, ast.Name) and one.id.strip("_").isupper() for one in targets)
    return named and node.value is not None and _has_number(node.value)


def _has_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, _NUMBERS) and not isinstance(value.value, bool)
    if isinstance(value, ast.UnaryOp):
        return _has_number(value.operand)
    if isinstance(value, ast.BinOp):
        return _has_number(value.left) or _has_number(value.right)
    return isinstance(value, ast.Tuple) and any(_has_number(one) for one in value.elts)


def classes(folder: Path) -> list[tuple[str, int]]:
    """Return the classes with 30 methods or more."""
    trees = (ast.parse(path.read_text()) for path in folder.rglob("*.py"))
    return sorted((one for tree in trees for one in large_classes(tree)), key=lambda one: -one[1])


def table(folder: Path) -> Iterator[str]:
    """Yield the lines of the table for a tree."""
    source = folder / "src" / "forebay"
    plain, rich = passed_on_a_plain_day(), passed_in_random_days(SEEDS)
    found = circles(imports(source / "core", "forebay.core"))
    large = classes(source)
    for what, count in (
        ("functions that an event passes on a plain day", len(plain)),
        ("... in so many files", len({path for path, _ in plain})),
        (f"functions that an event passes in {SEEDS} random days", len(rich)),
        ("modules of the core in the largest circle of imports", len(found[0]) if found else 0),
        ("numeric constants in core", constants(source / "core")),
        ("numeric constants in nodes", constants(source / "nodes")),
        ("classes with 30 methods or more", len(large)),
        ("... and the most methods of one", large[0][1] if large else 0),
    ):
        yield f"{what:<56} {count:>4}"
    if "--names" in sys.argv:
        yield from sorted(f"{Path(path).stem}.{name}" for path, name in plain)


if __name__ == "__main__":
    others = [Path(text) for text in sys.argv[1:] if not text.startswith("--")]
    for line in table(others[0] if others else ROOT):
        print(line)  # noqa: T201 - what it is for
