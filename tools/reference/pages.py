"""Every generated file, and what it should hold."""

from pathlib import Path

from forebay.settings.example import example_toml, json_schema
from tools.reference import (
    commands,
    decisions,
    diagrams,
    errors,
    grafana,
    headers,
    metrics,
    python,
    routes,
    settings,
)

MODULES = (commands, decisions, errors, grafana, headers, metrics, routes, settings)


def pages() -> dict[Path, str]:
    """Return the text of each generated file by its path from the root of the repository."""
    return {
        **{module.PAGE: module.page() for module in MODULES},
        **python.pages(),
        **{page: diagrams.drawn(page) for page in diagrams.PAGES},
        Path("forebay.example.toml"): example_toml(),
        Path("docs/reference/forebay.schema.json"): json_schema(),
    }
