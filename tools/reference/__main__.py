"""Write every generated file anew, and `build/openapi.json`: `make reference`."""

from pathlib import Path

import msgspec

from forebay.gateway.openapi.document import document
from tools.reference.pages import pages

OPENAPI = Path("build/openapi.json")

if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
    OPENAPI.parent.mkdir(exist_ok=True)
    OPENAPI.write_bytes(msgspec.json.format(msgspec.json.encode(document()), indent=2) + b"\n")
