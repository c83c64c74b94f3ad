"""Write the state diagrams in the docs anew from the transition tables."""

from pathlib import Path

from forebay.core.states import mermaid as tickets
from forebay.jobs.job import mermaid as jobs
from forebay.sessions.prompt import mermaid as prompts

ROOT = Path(__file__).parents[2]
DOCS = Path("docs")
PAGES = {
    DOCS / "internals" / "scheduler.md": ("forebay.core.states", tickets),
    DOCS / "jobs.md": ("forebay.jobs.job", jobs),
    DOCS / "sessions.md": ("forebay.sessions.prompt", prompts),
}
END = "<!-- end of diagram -->"


def drawn(path: Path) -> str:
    """Return the page with the diagram of its table as it is now."""
    module, draw = PAGES[path]
    begin = f"<!-- made by `make reference` from {module} -->\n"
    before, rest = (ROOT / path).read_text().split(begin)
    _, after = rest.split(END)
    return f"{before}{begin}```mermaid\n{draw()}```\n{END}{after}"
