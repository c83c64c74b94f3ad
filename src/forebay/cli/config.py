"""`forebay config`: write, check and show the settings."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from forebay.cli.offers import settings as offered_settings
from forebay.settings import (
    LoadedSettings,
    Problem,
    Settings,
    SettingsError,
    explain,
    load_with_origins,
    node_api_key,
    read_secret,
    resolve_keys,
)
from forebay.settings.addresses import without_password
from forebay.settings.names import blocks, valid_keys
from forebay.settings.reference import as_toml, example_toml, json_schema

BAD_SETTINGS = 2
URLS = ("jobs.database", "sessions.database", "coordination.url")

config_app = typer.Typer(
    name="config", help="Write, check and show the settings.", no_args_is_help=True
)

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="The settings file; else ./forebay.toml, if there is one."),
]
SetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one setting; may be repeated.",
        autocompletion=offered_settings,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@config_app.command()
def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("forebay.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write a settings file to start from, every key commented out with its default."""
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(example_toml())
    except FileExistsError:
        _fail(f"{path} exists already. Look at it: forebay config check {path}, or use --force.", 1)
    except OSError as error:
        _fail(f"{path} cannot be written: {error.strerror}. Name another path.", 1)
    typer.echo(f"Wrote {path}. Change what you need, then run: forebay config check {path}")


@config_app.command()
def check(
    file: Annotated[Path | None, typer.Argument(help="The file; else ./forebay.toml.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check the settings, the environment and its secrets included, and say what they mean."""
    try:
        loaded = load_with_origins(file)
        _check_surroundings(loaded.settings)
    except SettingsError as error:
        if as_json:
            problems = [problem._asdict() for problem in error.problems]
            typer.echo(json.dumps({"ok": False, "problems": problems}, indent=2))
            raise typer.Exit(BAD_SETTINGS) from None
        _fail(f"{_sentence(str(error))}\nNothing was started. Correct this and check again.")
    words = explain(loaded.settings)
    if as_json:
        typer.echo(json.dumps({"ok": True, "meaning": words}, indent=2))
        return
    source = str(loaded.path) if loaded.path is not None else "No settings file, so defaults"
    typer.echo(
        "\n".join([f"{source}: fine. With these settings the gateway would do this:", *words])
    )


@config_app.command()
def show(config: ConfigFile = None, settings: SetOptions = None, as_json: AsJson = False) -> None:
    """Show every setting in force, and where it came from."""
    try:
        loaded = load_with_origins(config, settings or ())
    except SettingsError as error:
        _fail(_sentence(str(error)))
    values = _shown_values(loaded.settings)
    typer.echo(_as_json(loaded, values) if as_json else _as_lines(loaded, values))


@config_app.command()
def schema() -> None:
    """Print the JSON schema of the settings file, for editors."""
    typer.echo(json_schema(), nl=False)


def _check_surroundings(settings: Settings) -> None:
    """Look at what the settings only name: secrets in variables, files with certificates.

    Raises `SettingsError` with all that is missing.
    """
    problems = [*_missing_files(settings), *_missing_secrets(settings)]
    if problems:
        raise SettingsError(problems)


def _missing_files(settings: Settings) -> Iterable[Problem]:
    for key in ("tls_cert", "tls_key"):
        path = getattr(settings.server, key)
        if path and not Path(path).is_file():
            yield Problem(f"server.{key}", f"there is no file {path}", "correct the path")


def _missing_secrets(settings: Settings) -> Iterable[Problem]:
    variables = {
        "jobs.webhook_secret_env": settings.jobs.webhook_secret_env,
        "guard.token_env": settings.guard.token_env,
    }
    attempts: list[Callable[[], object]] = [
        partial(resolve_keys, settings),
        *(partial(node_api_key, node) for node in settings.nodes),
        *(partial(read_secret, key, variable) for key, variable in variables.items()),
    ]
    for attempt in attempts:
        try:
            attempt()
        except SettingsError as error:
            yield from error.problems


def _shown_values(settings: Settings) -> dict[str, Any]:
    """Return every value by its dotted key, passwords starred out, digests left out."""
    nested = settings.model_dump(exclude={"keys": {"__all__": {"key_sha256"}}})
    flat: dict[str, Any] = {}
    for key in valid_keys():
        section, _, field = key.partition(".")
        value = nested[section][field] if field else nested[section]
        flat[key] = without_password(value) if key in URLS else value
    return flat


def _as_lines(loaded: LoadedSettings, values: dict[str, Any]) -> str:
    texts = {key: f"{key} = {as_toml(value)}" for key, value in values.items()}
    width = max(len(text) for key, text in texts.items() if key not in blocks())
    return "\n".join(f"{text:<{width}}  # {loaded.origins[key]}" for key, text in texts.items())


def _as_json(loaded: LoadedSettings, values: dict[str, Any]) -> str:
    shown = {
        key: {"value": _without_infinity(value), "from": loaded.origins[key].kind}
        | ({"name": loaded.origins[key].name} if loaded.origins[key].name else {})
        for key, value in values.items()
    }
    return json.dumps(shown, indent=2)


def _without_infinity(value: Any) -> Any:
    """Return the value with infinity, which JSON does not have, as the word `inf`."""
    return "inf" if value == float("inf") else value


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _fail(message: str, status: int = BAD_SETTINGS) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(status)
