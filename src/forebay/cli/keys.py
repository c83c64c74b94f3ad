"""`forebay keys`: make API keys."""

import json
import secrets
from typing import Annotated

import typer
from pydantic import ValidationError

from forebay.cli.exits import USAGE
from forebay.cli.output.console import fail, tell
from forebay.settings import KeySettings, digest_of

BYTES = 32
"""256 bits: nobody guesses them, so a plain SHA-256 is enough to keep them by."""

keys_app = typer.Typer(name="keys", help="Make API keys.", no_args_is_help=True)


@keys_app.callback()
def keys() -> None:
    """Make API keys."""


@keys_app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the key: letters, digits, . _ -")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a key, show it once, and print the block for forebay.toml that lets it in."""
    key = f"fb-{secrets.token_urlsafe(BYTES)}"
    try:
        block = KeySettings(name=name, key_sha256=digest_of(key))
    except ValidationError:
        fail(
            "a key's name is 1 to 64 letters, digits, dots, dashes and underscores, such as "
            "team-a. Nothing was made.",
            code=USAGE,
        )
    toml = f'[[keys]]\nname = "{block.name}"\nkey_sha256 = "{block.key_sha256}"\n'
    if as_json:
        shown = {"name": block.name, "key": key, "key_sha256": block.key_sha256, "toml": toml}
        tell(json.dumps(shown, indent=2))
        return
    tell(f"The key, shown only now; its holder sends it as a bearer token:\n\n{key}\n")
    tell(f"Add this to forebay.toml, then reload or restart the gateway:\n\n{toml}", nl=False)
