"""On which line of a TOML file a key is: Python's parser does not say.

A plain reading of the lines: tables, blocks and assignments, text over several lines left out. It
is for messages only, and says nothing where it is not sure.
"""

import re

HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?")
ASSIGNMENT = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=""")
PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
LONG_TEXT = re.compile(r'"""|' + "'''")


def line_of(text: str, key: str) -> int | None:
    """Return the line of a dotted key, or of the nearest table that is to hold it.

    >>> text = '[queue]\\nmax_size = 1\\n[[nodes]]\\nname = "a"\\n[[nodes]]\\nurl = "b"\\n'
    >>> line_of(text, "queue.max_size"), line_of(text, "nodes[1].url"), line_of(text, "jobs")
    (2, 6, None)
    >>> line_of(text, "nodes[1].name")
    5
    """
    places = _places(text)
    while key:
        if key in places:
            return places[key]
        cut = max(key.rfind("."), key.rfind("["))
        key = key[:cut] if cut > 0 else ""
    return None


def _places(text: str) -> dict[str, int]:
    """Return the first line of each table, block and key, by dotted name."""
    places: dict[str, int] = {}
    blocks: dict[str, int] = {}
    table, is_in_text = "", False
    for number, line in enumerate(text.splitlines(), 1):
        was_in_text = is_in_text
        if len(LONG_TEXT.findall(line)) % 2:
            is_in_text = not is_in_text
        if was_in_text:
            continue
        if header := HEADER.fullmatch(line):
            table = _dotted(header[2])
            if header[1] == "[[":
                blocks[table] = blocks.get(table, -1) + 1
                table = f"{table}[{blocks[table]}]"
            places.setdefault(table, number)
        elif assignment := ASSIGNMENT.match(line):
            name = _dotted(assignment[1])
            places.setdefault(f"{table}.{name}" if table else name, number)
    return places


def _dotted(key: str) -> str:
    return ".".join(part.strip("\"'") for part in PART.findall(key))
