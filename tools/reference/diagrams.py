"""Write the state diagrams in the docs anew from the transition tables."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from forebay.core import states
from forebay.jobs import job
from forebay.sessions import prompt

ROOT = Path(__file__).parents[2]
DOCS = Path("docs")


def mermaid(first: Iterable[str], moves: Mapping[Any, str], final: Iterable[str]) -> str:
    """Draw a transition table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", *(f"    [*] --> {state}" for state in first)]
    lines += [f"    {state} --> {target}: {cause}" for (state, cause), target in moves.items()]
    lines += [f"    {state} --> [*]" for state in final]
    return "\n".join(lines) + "\n"


PAGES = {
    DOCS / "internals" / "scheduler.md": (
        "forebay.core.states",
        mermaid(("new",), states.TRANSITIONS, sorted(states.ENDED)),
    ),
    DOCS / "jobs.md": (
        "forebay.jobs.job",
        mermaid(
            ("queued: submit", "failed: too many queued"),
            job.TRANSITIONS,
            ("completed", "failed", "cancelled"),
        ),
    ),
    DOCS / "sessions.md": (
        "forebay.sessions.prompt",
        mermaid(("accepting: admitted",), prompt.TRANSITIONS, prompt.FINAL),
    ),
}
END = "<!-- end of diagram -->"


def drawn(path: Path) -> str:
    """Return the page with the diagram of its table as it is now."""
    module, diagram = PAGES[path]
    begin = f"<!-- made by `make reference` from {module} -->\n"
    before, rest = (ROOT / path).read_text().split(begin)
    _, after = rest.split(END)
    return f"{before}{begin}```mermaid\n{diagram}```\n{END}{after}"
