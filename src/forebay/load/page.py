"""A report as one HTML file: its data, and the dashboard's charts to draw it with.

What came from outside is only data: JSON without a `<`, which cannot end its element, and which the
script puts into the page as text. The policy lets the page run and style itself with what has the
digests of what was written here, and fetch nothing.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from forebay.load.report import Report

STYLES = ("dashboard/static/style.css", "dashboard/static/tables.css", "load/static/report.css")
MODULES = (
    "dashboard/static/scale.js",
    "dashboard/static/chart.js",
    "dashboard/static/dom.js",
    "load/static/report.js",
)
"""In the order in which they import one another; no name is defined in two of them."""
_LINKS = re.compile(r"^import .*\n|^export (?=class|function|const)", re.MULTILINE)


def page(report: Report) -> str:
    """Return the page of a report; it needs nothing else."""
    style = "".join(map(_text, STYLES))
    script = "".join(_LINKS.sub("", _text(name)) for name in MODULES)
    return Template(_text("load/static/report.html")).substitute(
        title=escape(report.title),
        policy=f"style-src {_digest(style)}; script-src {_digest(script)}",
        style=style,
        script=script,
        data=msgspec.json.encode(report).decode().replace("<", "\\u003c"),
    )


def _text(name: str) -> str:
    return files("forebay").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
