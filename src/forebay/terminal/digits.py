"""Numbers three rows high, for terminals with room for them."""

from __future__ import annotations

DIGITS_ROWS = 3
_DRAWN = {
    "0": ("┏━┓", "┃ ┃", "┗━┛"),
    "1": ("╺┓ ", " ┃ ", "╺┻╸"),
    "2": ("╺━┓", "┏━┛", "┗━╸"),
    "3": ("╺━┓", "╺━┫", "╺━┛"),
    "4": ("╻ ╻", "┗━┫", "  ╹"),
    "5": ("┏━╸", "┗━┓", "╺━┛"),
    "6": ("┏━╸", "┣━┓", "┗━┛"),
    "7": ("╺━┓", "  ┃", "  ╹"),
    "8": ("┏━┓", "┣━┫", "┗━┛"),
    "9": ("┏━┓", "┗━┫", "╺━┛"),
    "-": ("   ", "╺━╸", "   "),
}


def big(text: str) -> list[str]:
    """Return a number in three rows; what is not a digit stays small, on the lowest.

    >>> print("\\n".join(big("1.2 s")))
    ╺┓  ╺━┓
     ┃  ┏━┛
    ╺┻╸.┗━╸ s
    """
    drawn = [_DRAWN.get(letter, (" ", " ", letter)) for letter in text]
    return ["".join(parts).rstrip() for parts in zip(*drawn, strict=True)]
