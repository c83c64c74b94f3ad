"""What MkDocs is told beyond mkdocs.yml: decisions, links out of docs/, diagrams without a script.

On GitHub the pages link to files beside docs/ (the unit, the example settings, the contributors'
page) and show Mermaid by themselves. The site has no such files, and no outside host to fetch a
renderer from: so what is linked to comes along under repository/, and diagrams are drawn here.
"""

import importlib.util
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BESIDE = "repository"
FENCE = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)((?:#[^)\s]+)?\))")
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Put every decision into the navigation, below their list."""
    written = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("decisions/0*.md"))
    for section in _sections(config.nav):
        if "decisions/README.md" in section:
            section += written
    return config


def _sections(nav: list[Any]) -> Iterator[list[Any]]:
    """Yield the lists that the navigation is made of."""
    yield nav
    for entry in nav:
        for inner in entry.values() if isinstance(entry, dict) else ():
            if isinstance(inner, list):
                yield from _sections(inner)


def on_files(files: Files, config: Any) -> Files:
    """Take along every file of the repository that a page links to, and what those link to."""
    left = list(DOCS.rglob("*.md"))
    seen: set[Path] = set()
    while left:
        page = left.pop()
        for target in _targets(page) - seen:
            seen.add(target)
            if not target.is_relative_to(DOCS):
                text = target.read_text()
                files.append(File.generated(config, _uri(target), content=text))
                left += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Draw the diagrams of a page, and lead its links to where things are on the site."""
    drawing = _drawing()
    drawn = MERMAID.sub(lambda found: drawing.svg(found[1], "States"), markdown)
    here = _path(page.file.src_uri)
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\0"

    def lead(found: re.Match[str]) -> str:
        target = _target(here, found[2])
        there = posixpath.relpath(_uri(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"{found[1]}{there}{found[3]}"

    led = LINK.sub(lead, FENCE.sub(keep, drawn))
    return re.sub("\0(\\d+)\0", lambda found: kept[int(found[1])], led)


def on_post_page(output: str, **_: Any) -> str:
    """Give the search dialog the name that the theme leaves out; screen readers say it."""
    return output.replace(' role="dialog">', ' role="dialog" aria-label="Search">')


def _targets(page: Path) -> set[Path]:
    links = LINK.findall(FENCE.sub("", page.read_text()))
    found = {_target(page, link) for _, link, _ in links}
    return {path for path in found if path.is_file()}


def _target(page: Path, link: str) -> Path:
    target = (page.parent / link).resolve()
    return target / "README.md" if target.is_dir() else target


def _uri(path: Path) -> str:
    """Return where a file of the repository is on the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{BESIDE}/{path.relative_to(ROOT).as_posix()}"


def _path(uri: str) -> Path:
    """Return which file of the repository a page of the site is."""
    is_beside = uri.startswith(f"{BESIDE}/")
    return ROOT / uri.removeprefix(f"{BESIDE}/") if is_beside else DOCS / uri


def _drawing() -> ModuleType:
    """Load the neighbour; MkDocs runs hooks as files, not as a package."""
    path = Path(__file__).parent / "state_diagram.py"
    spec = importlib.util.spec_from_file_location("state_diagram", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
