"""Write the state diagram in docs/internals/scheduler.md anew from the transition table."""

from pathlib import Path

from forebay.core.states import mermaid

PAGE = Path(__file__).parent / "internals" / "scheduler.md"
BEGIN = "<!-- made by `make diagram` from forebay.core.states -->\n"
END = "<!-- end of diagram -->"


def drawn(page: str) -> str:
    """Return the page with the diagram of the table as it is now."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}```mermaid\n{mermaid()}```\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
