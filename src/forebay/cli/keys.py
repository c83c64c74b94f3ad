"""`forebay keys`: list, make, renew and revoke API keys, at a gateway or for its settings file."""

from __future__ import annotations

import hashlib
import json
import secrets
import tomllib
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from forebay.cli.exits import USAGE
from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.invocation import with_url
from forebay.cli.output.console import fail, say, tell, tell_json
from forebay.cli.output.text import printable
from forebay.cli.verbs import SynonymGroup

if TYPE_CHECKING:
    from forebay.api.records import Key
    from forebay.settings import KeySettings

BYTES = 32
"""256 bits: nobody guesses them, so a plain SHA-256 is enough to keep them by."""

keys_app = typer.Typer(
    name="keys",
    cls=SynonymGroup,
    help="List, create, renew and revoke API keys.",
    epilog="Keys created at a gateway are stored as digests in the database of its jobs.",
    no_args_is_help=True,
)

KeyName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the key, from `forebay keys list`.")
]


@keys_app.command("list")
def list_keys(url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False) -> None:
    """Show every key and what it may do, never its text."""
    from forebay.api.records import KeyList

    client = GatewayClient(url, key_env)
    reply = client.insist("GET", "/admin/keys", KeyList)
    if as_json:
        tell_json(reply.raw["data"])
    elif reply.value.data:
        from forebay.cli.output.tables import plain_table, show

        table = plain_table(
            "Key", "User", "Admin", "Models", "Priority", "Limits", "From", "Created"
        )
        for key in reply.value.data:
            table.add_row(*_row(key))
        show(table)
    else:
        making = with_url("keys new NAME --admin", client.url)
        tell(f"There are no keys: everyone may call. Create the first with: {making}")


def _row(key: Key) -> list[str]:
    limits = [
        f"{most:,} {what}"
        for most, what in (
            (key.max_running, "at once"),
            (key.requests_per_minute, "requests/min"),
            (key.tokens_per_minute, "tokens/min"),
            (key.tokens_per_day, "tokens/day"),
        )
        if most
    ]
    if key.weight != 1:
        limits.append(f"weight {key.weight:g}")
    maker = f"key {printable(key.created_by)}" if key.created_by else "this machine"
    return [
        printable(key.name),
        printable(f"{key.user}/*" if key.trust_user else key.user),  # any that a request names
        "yes" if key.admin else "no",
        printable(",".join(key.models)) or "all",
        printable(key.max_priority),
        ", ".join(limits) or "none",
        "settings" if key.origin == "settings" else maker,
        printable(key.created_at or "-"),
    ]


@keys_app.command()
def new(  # noqa: PLR0913 - Typer reads the options from the signature
    name: Annotated[str, typer.Argument(help="Name of the key: letters, digits, . _ -")],
    *,
    admin: Annotated[
        bool, typer.Option("--admin", help="Admin key: may change nodes and keys.")
    ] = False,
    user: Annotated[str, typer.Option(help="User of the key; default: its name.")] = "",
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any other key of a [[keys]] block: max_running=4"
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Contact no gateway; print a block for forebay.toml.")
    ] = False,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Create a key, valid at once at a running gateway; it is shown only once.

    Where no gateway answers, or with --offline, print the block for forebay.toml that lets it in.
    """
    text = f"fb-{secrets.token_urlsafe(BYTES)}"
    given = {key: value for key, value in (("admin", admin), ("user", user)) if value}
    key = _key(name, text, {**given, **_assigned(assignments or ())})
    where = None if offline else _make_there(key, url, key_env)
    shown: dict[str, Any] = {"name": key.name, "key": text, "key_sha256": key.key_sha256}
    if where is None:
        toml = _block(key)
        if as_json:
            tell_json({**shown, "toml": toml})
            return
        tell(f"The key, shown only now; its holder sends it as a bearer token:\n\n{text}\n")
        tell(f"Add this to forebay.toml, then reload or restart the gateway:\n\n{toml}", nl=False)
    elif as_json:
        tell_json({**shown, "url": where})
    else:
        tell(f"The key, shown only now; its holder sends it as a bearer token:\n\n{text}\n")
        tell(f"It is valid at {where}. Revoke it with: {with_url(f'keys revoke {name}', where)}")


@keys_app.command()
def renew(
    name: KeyName, url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False
) -> None:
    """Give a key a new text, shown only once: the old one ends at once.

    Its jobs, files, batches, sessions and usage stay its own.
    """
    text = f"fb-{secrets.token_urlsafe(BYTES)}"
    client, digest = GatewayClient(url, key_env), hashlib.sha256(text.encode()).hexdigest()
    path = f"/admin/keys/{quote(name, safe='')}/renew"
    client.insist("POST", path, object, {"key_sha256": digest})
    if as_json:
        tell_json({"name": name, "key": text, "key_sha256": digest, "url": client.url})
    else:
        tell(f"The new text of key {printable(name)}, shown only now:\n\n{text}\n")
        tell("The old one is no longer valid.")


@keys_app.command()
def revoke(
    name: KeyName,
    last: Annotated[
        bool, typer.Option("--last", help="Revoke it even if it is the last admin key.")
    ] = False,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a key: its waiting requests get 401, running ones may finish."""
    path = f"/admin/keys/{quote(name, safe='')}{'?last=true' if last else ''}"
    GatewayClient(url, key_env).insist("DELETE", path, object)
    if as_json:
        tell_json({"name": name})
    else:
        tell(f"Key {printable(name)} was revoked.")


def _make_there(key: KeySettings, url: str | None, key_env: str) -> str | None:
    """Make the key at a gateway and return its address; None where none answers.

    Its text stays here: the gateway is told the digest.
    """
    from forebay.sdk import GatewayAway, SdkError

    client = GatewayClient(url, key_env)
    body = key.model_dump(mode="json", exclude_defaults=True)
    try:
        client.ask("POST", "/admin/keys", object, body)
    except GatewayAway as error:
        if url is not None:
            client.give_up(error)
        say(f"{printable(error)}: so this is for its settings file.")
        return None
    except SdkError as error:
        client.give_up(error)
    return client.url


def _key(name: str, text: str, chosen: dict[str, Any]) -> KeySettings:
    from forebay.settings import SettingsError, digest_of, parse_key

    try:
        return parse_key({**chosen, "name": name, "key_sha256": digest_of(text)})
    except SettingsError as error:
        problem = error.problems[0]
        if problem.key == "name":
            fail(
                "a key's name is 1 to 64 letters, digits, dots, dashes and underscores, such as "
                "team-a. Nothing was created.",
                code=USAGE,
            )
        option = "--user" if problem.key == "user" else f"--set {problem.key}"
        advice = problem.instead if problem.instead.endswith("?") else f"{problem.instead}."
        fail(f"{option}: it {problem.wrong}; {advice} Nothing was created.", code=USAGE)


def _assigned(assignments: list[str] | tuple[()]) -> dict[str, Any]:
    """Return what --set says; a value is TOML, or a plain text."""
    found: dict[str, Any] = {}
    for assignment in assignments:
        key, mark, value = assignment.partition("=")
        if not mark or not key.isidentifier():
            fail(f"--set {assignment}: write KEY=VALUE, such as max_running=4.", code=USAGE)
        try:
            found[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key] = value
    return found


def _block(key: KeySettings) -> str:
    lines = [f'name = "{key.name}"', f'key_sha256 = "{key.key_sha256}"']
    given = key.model_dump(mode="json", exclude_defaults=True, exclude={"name", "key_sha256"})
    lines += [f"{field} = {json.dumps(value)}" for field, value in given.items()]
    return "\n".join(["[[keys]]", *lines]) + "\n"
