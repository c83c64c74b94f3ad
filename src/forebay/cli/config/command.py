"""`forebay config`: write, check and show the settings."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from forebay.cli.config.checks import environment_problems, environment_risks
from forebay.cli.exits import USAGE
from forebay.cli.init import init
from forebay.cli.options import ConfigFile, SetOptions
from forebay.cli.output.console import check_config, counted, fail, tell
from forebay.cli.verbs import SynonymGroup
from forebay.settings import (
    LoadedSettings,
    Settings,
    SettingsError,
    SettingsProblem,
    explain,
    load_with_origins,
)
from forebay.settings.addresses import without_password
from forebay.settings.example import as_toml, json_schema
from forebay.settings.loader import placed
from forebay.settings.names import blocks, valid_keys
from forebay.settings.review import risks

if TYPE_CHECKING:
    from forebay.cli.config.probe import NodeProbe

URLS = ("jobs.database", "sessions.database", "coordination.url")

config_app = typer.Typer(
    name="config",
    cls=SynonymGroup,
    help="Write, check and show the settings.",
    no_args_is_help=True,
)

FileArgument = Annotated[Path | None, typer.Argument(help="The same as --config FILE.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


config_app.command()(init)


@config_app.command()
def check(
    file: FileArgument = None,
    *,
    config: ConfigFile = None,
    settings: SetOptions = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with an error on warnings, too.")
    ] = False,
    probe: Annotated[bool, typer.Option("--probe", help="Probe every node.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the settings, the environment and its secrets included, and say what they mean.

    Exits with 2 if the gateway would not start; with --strict also for a warning, or a node that
    does not answer.
    """
    try:
        loaded = load_with_origins(_one_file(file, config), settings or ())
        if problems := environment_problems(loaded.settings):
            raise SettingsError(problems)
    except SettingsError as error:
        _tell_problems(error, as_json)
    checked = _look_closer(loaded, ask_nodes=probe)
    if as_json:
        tell(json.dumps(checked.as_json(strict), indent=2))
    else:
        tell("\n".join(checked.lines()))
    if strict and checked.is_doubtful:
        raise typer.Exit(USAGE)


@config_app.command()
def show(
    file: FileArgument = None,
    *,
    config: ConfigFile = None,
    settings: SetOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show every setting in effect, and its source."""
    try:
        loaded = load_with_origins(_one_file(file, config), settings or ())
    except SettingsError as error:
        fail(str(error), code=USAGE)
    values = _shown_values(loaded.settings)
    tell(_as_json(loaded, values) if as_json else _as_lines(loaded, values))


@config_app.command()
def schema() -> None:
    """Print the JSON schema of the settings file, for editors."""
    tell(json_schema(), nl=False)


def _one_file(file: Path | None, config: Path | None) -> Path | None:
    """Return the file that was named in either way."""
    if file is not None and config is not None and file != config:
        fail(f"{file} and --config {config} are two files: name one of them.", code=USAGE)
    check_config(config)
    return file or config


class CheckReport(NamedTuple):
    """What there is to say of settings that can be used."""

    path: Path | None
    meaning: list[str]
    warnings: list[SettingsProblem]
    nodes: "list[NodeProbe] | None"
    """What each node said; None where they were not asked."""

    @property
    def is_doubtful(self) -> bool:
        return bool(self.warnings) or any(node.state == "offline" for node in self.nodes or ())

    def lines(self) -> Iterable[str]:
        source = str(self.path) if self.path is not None else "No settings file, so defaults"
        yield f"{source}: fine. With these settings the gateway would do this:"
        yield from self.meaning
        yield from (str(node) for node in self.nodes or ())
        if self.warnings:
            yield f"But look at {counted(len(self.warnings), 'warning')}:"
            yield from (f"  {warning}" for warning in self.warnings)

    def as_json(self, strict: bool) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "ok": not (strict and self.is_doubtful),
            "meaning": self.meaning,
            "warnings": [warning._asdict() for warning in self.warnings],
        }
        return shown | ({} if self.nodes is None else {"nodes": [n._asdict() for n in self.nodes]})


def _tell_problems(error: SettingsError, as_json: bool) -> NoReturn:
    if as_json:
        problems = [problem._asdict() for problem in error.problems]
        tell(json.dumps({"ok": False, "problems": problems}, indent=2))
        raise typer.Exit(USAGE) from None
    fail(f"{error}\nNothing was started. Correct this and check again.", code=USAGE)


def _look_closer(loaded: LoadedSettings, *, ask_nodes: bool) -> CheckReport:
    settings = loaded.settings
    warnings = placed([*risks(settings), *environment_risks(settings)], loaded)
    nodes = None
    if ask_nodes:
        from forebay.cli.config.probe import probe as probe_nodes  # not for every check

        nodes = probe_nodes(settings.nodes)
    return CheckReport(loaded.path, explain(settings), warnings, nodes)


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
