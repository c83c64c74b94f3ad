"""The page's own files, read once from the package; nothing else can be asked for by name."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Final

from msgspec import Struct

MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

SECURITY_HEADERS: Final = {
    # The page has its code and its looks from us alone, talks to us alone, and cannot make markup
    # out of text: names of models and texts of errors come from outside.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # asked for anew each time, sent anew only where it has changed
}


class PageFile(Struct, frozen=True):
    """One file of the page."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Return the files by name; `index.html` is the page itself."""
    found = {}
    for file in resources.files("forebay.dashboard").joinpath("static").iterdir():
        ending = "." + file.name.rpartition(".")[2]
        if ending in MEDIA_TYPES:
            content = file.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            found[file.name] = PageFile(content, MEDIA_TYPES[ending], etag)
    return found
