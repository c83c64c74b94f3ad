"""`forebay models` and `forebay reload`: what runs where, and settings read again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from forebay.settings import Settings, SettingsError, SettingsProblem, digest_of

if TYPE_CHECKING:
    import pytest

    from .conftest import Desk

KEYS = [
    {"name": "chief", "key_sha256": digest_of("chief-secret"), "admin": True},
    {"name": "team", "key_sha256": digest_of("team-secret")},
]


async def test_each_model_is_on_a_line_with_the_nodes_that_have_it(desk: Desk) -> None:
    await desk.start(await desk.node(models=("llama", "qwen")), await desk.node(models=("llama",)))
    done = await desk.run("models")
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["llama", "n1,", "n2", "n1,", "n2"] in rows
    assert ["qwen", "n1", "n1"] in rows
    listed = json.loads((await desk.run("models", "--json")).stdout)
    assert listed[0] == {"id": "llama", "nodes": ["n1", "n2"], "loaded": ["n1", "n2"]}


async def test_who_may_not_see_nodes_sees_the_models_only(desk: Desk) -> None:
    await desk.start(await desk.node(models=("llama",)), keys=KEYS)
    done = await desk.run("models", "--key-env", "K", K="team-secret")
    assert (done.exit_code, done.stdout.split()) == (0, ["Model", "llama"])
    assert (await desk.run("models")).exit_code == 4


async def test_without_a_model_the_way_to_one_names_the_same_gateway_and_key(desk: Desk) -> None:
    await desk.start(keys=KEYS)
    done = await desk.run("models", "--key-env", "K", K="chief-secret")
    url = f"http://127.0.0.1:{desk.gateway.port}"
    assert f"forebay nodes add URL --url {url} --key-env K" in done.stdout


async def test_reload_says_what_has_changed(desk: Desk) -> None:
    await desk.start(await desk.node())
    assert "nothing changed" in (await desk.run("reload")).stdout
    queue = desk.settings.queue.model_copy(update={"max_size": 7})
    desk.settings = desk.settings.model_copy(update={"queue": queue})
    assert "changed: queue.max_size" in (await desk.run("reload")).stdout
    assert json.loads((await desk.run("reload", "--json")).stdout) == {"changed": []}


async def test_reload_says_what_is_wrong_with_the_settings(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Settings:
        raise SettingsError([SettingsProblem("queue.max_size", "is below 0", "write 0 or more")])

    monkeypatch.setattr(desk, "read_settings", broken)
    await desk.start(await desk.node())
    done = await desk.run("reload")
    assert done.exit_code == 1
    assert "queue.max_size: is below 0; write 0 or more" in done.stderr
