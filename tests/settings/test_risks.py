"""Warnings about settings that work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.settings import Settings, load_settings, load_with_origins
from forebay.settings.loader import placed
from forebay.settings.review import explain, risks

if TYPE_CHECKING:
    from pathlib import Path

KEY = {"name": "a", "key_sha256": "ab" * 32}
NODE = {"name": "n", "url": "http://gpu1:8000"}


def warned(**flags: object) -> list[str]:
    dotted = {name.replace("__", "."): value for name, value in flags.items()}
    return [risk.key for risk in risks(load_settings(None, dotted, {}))]


def test_several_workers_are_explained_and_one_is_not_mentioned() -> None:
    assert "processes" not in " ".join(explain(Settings()))
    two = load_settings(None, {"server.workers": 2}, {})
    assert "with 2 processes that share one queue." in explain(two)[0]


def test_the_defaults_are_without_a_warning() -> None:
    assert risks(Settings()) == []


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"server__host": "0.0.0.0"}, "keys"),
        ({"server__host": "gateway.example"}, "keys"),
        ({"server__host": "::", "keys": [KEY]}, "server.tls_cert"),
        ({"server__cors_origins": ["*"]}, "server.cors_origins"),
        ({"queue__keepalive_seconds": 0, "queue__max_wait_seconds": 61}, "queue.keepalive_seconds"),
        (
            {"queue__keepalive_seconds": 90, "queue__max_wait_seconds": float("inf")},
            "queue.keepalive_seconds",
        ),
        ({"queue__max_per_user": 100}, "queue.max_per_user"),
        ({"queue__first_byte_seconds": 601}, "queue.first_byte_seconds"),
        ({"queue__chunk_gap_seconds": 601}, "queue.chunk_gap_seconds"),
        ({"nodes": [NODE, {**NODE, "name": "m"}]}, "nodes[1].url"),
        ({"nodes": [{"url": "http://localhost:7800"}]}, "nodes[0].url"),
        (
            {"nodes": [{**NODE, "models": ["a"]}], "models__aliases": {"x": "b"}},
            'models.aliases."x"',
        ),
        (
            {"nodes": [{**NODE, "models": ["a"]}], "keys": [{**KEY, "models": ["b"]}]},
            "keys[0].models",
        ),
    ],
)
def test_what_is_risky_is_named(flags: dict[str, object], key: str) -> None:
    assert warned(**flags) == [key]


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"coordination__url": "redis://cache"}, "server.host"),
        (
            {
                "coordination__url": "redis+sentinel://127.0.0.1,cache/main",
                "coordination__advertise": "http://localhost:7800",
            },
            "coordination.advertise",
        ),
    ],
)
def test_a_gateway_that_others_cannot_reach_is_told_of(flags: dict[str, object], key: str) -> None:
    assert key in warned(**flags)
    assert key not in warned(**{**flags, "coordination__advertise": "http://10.0.0.1:7800"})
    assert key not in warned(**{**flags, "coordination__url": "unix:///run/valkey.sock"})


@pytest.mark.parametrize(
    "flags",
    [
        {"server__host": "::1"},
        {"server__host": "0.0.0.0", "keys": [KEY], "server__trusted_proxies": ["10.0.0.0/8"]},
        {"server__cors_origins": ["*"], "keys": [KEY]},
        {"queue__keepalive_seconds": 0},
        {"queue__max_wait_seconds": float("inf")},
        {"queue__keepalive_seconds": 0, "queue__max_wait_seconds": 99, "queue__stream": "reject"},
        {"queue__max_per_user": 99},
        {"nodes": [NODE], "models__aliases": {"x": "whatever it has"}},
    ],
)
def test_what_is_not_is_not(flags: dict[str, object]) -> None:
    assert warned(**flags) == []


def test_a_warning_says_where_its_value_is(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text("[queue]\n# much\nmax_per_user = 500\n")
    loaded = load_with_origins(file, (), {})
    (risk,) = placed(risks(loaded.settings), loaded)
    assert risk.where == f"file {file}:3"
