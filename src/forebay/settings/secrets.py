"""Secrets by the variables that hold them: read late, kept out of the settings and of any repr."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from forebay.core import KeyLimits, parse_priority
from forebay.settings.environment import current_environment
from forebay.settings.errors import SettingsError, SettingsProblem
from forebay.settings.keys import KeySettings, digest_of
from forebay.settings.model import Settings
from forebay.settings.nodes import NodeSettings

NO_LIMITS: Final = KeyLimits()


@dataclass(frozen=True, slots=True)
class ResolvedKey:
    """A key as the gateway checks it; the text of the key itself is nowhere."""

    name: str
    owner: str
    """Whom all belongs to that is made with it: an id that was drawn with a key made at run time
    and outlives its text, or the name of a key of the settings."""
    user: str
    """The user of its requests, unless it has `trust_user` and they name one."""
    sha256: str = field(repr=False)
    """Digest of the key's text, in lower-case hex."""
    trust_user: bool
    max_priority: str
    """One of the classes in force: a `low` that the profile reads as normal is normal here."""
    models: tuple[str, ...]
    """Models it may use; empty is all."""
    max_running: int
    """0 is no limit."""
    weight: float
    admin: bool
    limits: KeyLimits = NO_LIMITS
    """Its rates, which pace it."""
    share_prefixes: bool = False
    """Whether its prompts are compared with those of other keys that share theirs."""


def resolve_keys(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> tuple[ResolvedKey, ...]:
    """Return the keys with their digests, in the order of the settings.

    Raises `SettingsError` naming every variable that is missing or holds no usable key, and two
    keys that turn out to be the same.
    """
    known = current_environment() if environ is None else environ
    problems: list[SettingsProblem] = []
    resolved: dict[str, ResolvedKey] = {}
    for index, key in enumerate(settings.keys):
        place = f"keys[{index}].key_env"
        try:
            digest = key.key_sha256 or digest_of(_secret(place, key.key_env, known))
        except SettingsError as error:
            problems += error.problems
            continue
        if digest in resolved:
            wrong = f"{key.name} is the same key as {resolved[digest].name}"
            problems.append(
                SettingsProblem(f"keys[{index}]", wrong, "make a new one: forebay keys new")
            )
        made = _resolved(key, key.name, digest, settings.queue.priorities)
        resolved.setdefault(digest, made)
    if problems:
        raise SettingsError(problems)
    return tuple(resolved.values())


def _resolved(
    key: KeySettings, owner: str, digest: str, priorities: tuple[str, ...]
) -> ResolvedKey:
    return ResolvedKey(
        name=key.name,
        owner=owner,
        user=key.user or key.name,
        sha256=digest,
        trust_user=key.trust_user,
        max_priority=parse_priority(key.max_priority, priorities),
        models=key.models,
        max_running=key.max_running,
        weight=key.weight,
        admin=key.admin,
        limits=key.limits(),
        share_prefixes=key.share_prefixes,
    )


def resolve_made_key(key: KeySettings, owner: str, priorities: tuple[str, ...]) -> ResolvedKey:
    """Return a key that was made while the gateway ran, which has its digest."""
    return _resolved(key, owner, key.key_sha256, priorities)


def node_api_key(node: NodeSettings, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the API key that a node wants, None where it wants none.

    Raises `SettingsError` when the variable that should hold it is missing.
    """
    return read_secret(f"api_key_env of node {node.name}", node.api_key_env, environ)


def read_secret(key: str, variable: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return what a variable holds for the setting `key`; None where that names no variable.

    Raises `SettingsError` when the variable is missing, or cannot be sent in a header.
    """
    if not variable:
        return None
    return _secret(key, variable, current_environment() if environ is None else environ)


def _secret(key: str, variable: str, environ: Mapping[str, str]) -> str:
    text = environ.get(variable, "")
    if not text:
        state = "empty" if variable in environ else "not set"
        wrong = f"the environment variable {variable} is {state}"
        raise SettingsError(
            [SettingsProblem(key, wrong, f"set {variable}, or name another variable")]
        )
    if not text.isprintable() or not text.isascii() or " " in text:
        wrong = f"the environment variable {variable} holds blanks, line ends or special characters"
        raise SettingsError([SettingsProblem(key, wrong, "set it to the secret and nothing else")])
    return text
