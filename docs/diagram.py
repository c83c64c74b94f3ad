"""Write the state diagrams in the docs anew from the transition tables."""

from pathlib import Path

from forebay.core.states import mermaid as tickets
from forebay.jobs.job import mermaid as jobs
from forebay.sessions.prompt import mermaid as prompts

DOCS = Path(__file__).parent
PAGES = {
    DOCS / "internals" / "scheduler.md": ("forebay.core.states", tickets),
    DOCS / "jobs.md": ("forebay.jobs.job", jobs),
    DOCS / "sessions.md": ("forebay.sessions.prompt", prompts),
}
END = "<!-- end of diagram -->"


def drawn(path: Path) -> str:
    """Return the page with the diagram of its table as it is now."""
    module, draw = PAGES[path]
    begin = f"<!-- made by `make diagram` from {module} -->\n"
    before, rest = path.read_text().split(begin)
    _, after = rest.split(END)
    return f"{before}{begin}```mermaid\n{draw()}```\n{END}{after}"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(drawn(path))
