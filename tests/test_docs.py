"""What the pages say must be what the code does."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_state_diagram_is_the_transition_table() -> None:
    spec = importlib.util.spec_from_file_location("diagram", ROOT / "docs" / "diagram.py")
    assert spec is not None
    assert spec.loader is not None
    diagram = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(diagram)
    page = (ROOT / "docs" / "internals" / "scheduler.md").read_text()
    assert diagram.drawn(page) == page, "run: make diagram"


def test_every_relative_link_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")]
    assert pages
    for page in pages:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_make_target_in_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`make ([a-z]+)", (ROOT / "README.md").read_text())):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_examples_in_the_readme_do_what_they_say() -> None:
    """Each line that ends in `# Word: ...` must return an action of that name."""
    claims = 0
    for block in python_blocks("README.md"):
        names: dict[str, object] = {}
        for line in block.splitlines():
            claim = re.search(r"^(.*)  # (\w+): ", line)
            if claim is None:
                exec(line, names)
            else:
                actions = eval(claim[1], names)
                assert [type(action).__name__ for action in actions] == [claim[2]], line
                claims += 1
    assert claims >= 4


def test_the_example_of_the_simulation_page_runs() -> None:
    (block,) = python_blocks("docs/simulation.md")
    shown: list[object] = []
    names: dict[str, object] = {"print": lambda *what, **_: shown.append(what)}
    exec(block.replace("duration_s=3600.0", "duration_s=60.0"), names)
    assert len(shown) == 3
