"""A reload changes nodes, keys, models and limits; everything else needs a restart."""

import pytest

from forebay.core.options import FROZEN_WHILE_RUNNING
from forebay.settings import ReloadPlan, Settings, SettingsError, load_settings, plan_reload
from forebay.settings.names import valid_keys
from forebay.settings.queue import KEY_OF_OPTION

OTHER: dict[str, object] = {
    "server.host": "::1",
    "server.cors_origins": ["*"],
    "server.allowed_hosts": ["a"],
    "server.trusted_proxies": ["10.0.0.1"],
    "server.tls_cert": "a",
    "server.tls_key": "a",
    "queue.profile": "nexus",
    "queue.when_full": "displace",
    "queue.stream": "reject",
    "queue.fairness": "round_robin",
    "queue.priorities": ["normal"],
    "queue.priority": "weighted",
    "queue.weights": {"high": 2},
    "queue.swap_share": 0.5,
    "retry.budget": 0.5,
    "retry.stream": "buffer",
    "models.aliases": {"a": "b"},
    "models.fallbacks": {"a": ["b"]},
    "sessions.database": "sqlite:///s.db",
    "jobs.database": "sqlite:///other.db",
    "jobs.modules": ["app"],
    "jobs.vram_budgets": {"a": 1},
    "jobs.on_interrupt": "retry",
    "jobs.files_folder": "elsewhere",
    "jobs.webhook_url": "http://a/hook",
    "jobs.webhook_secret_env": "A",
    "guard.token_env": "A",
    "coordination.url": "redis://a",
    "coordination.advertise": "http://10.0.0.1:7800",
}
"""Another value for each key that is no plain number or flag."""
TLS: dict[str, object] = {"server.tls_cert": "b", "server.tls_key": "b"}
BESIDE: dict[str, dict[str, object]] = {
    "server.tls_cert": TLS,
    "server.tls_key": TLS,
    "queue.weights": {"queue.priority": "weighted"},
}
"""What else must be set before and after, for the change to be one of that key alone."""
RESTART = {f"queue.{KEY_OF_OPTION[option]}" for option in FROZEN_WHILE_RUNNING}
KEYS = [key for key in valid_keys() if "." in key]


def load(flags: dict[str, object]) -> Settings:
    return load_settings(None, flags, {})


def changes(plan: ReloadPlan) -> bool:
    parts = (plan.nodes, plan.keys, plan.queue, plan.retry, plan.models, plan.usage, plan.refused)
    return any(parts)


def other_value(key: str) -> object:
    section, _, field = key.partition(".")
    value = getattr(getattr(Settings(), section), field)
    if key in OTHER:
        return OTHER[key]
    return not value if isinstance(value, bool) else value + 1


def test_those_that_need_a_restart_are_the_four_of_the_core() -> None:
    assert {"queue.priorities", "queue.priority", "queue.fairness", "queue.when_full"} == RESTART


def test_the_same_settings_change_nothing() -> None:
    plan = plan_reload(load({}), load({}))
    assert not changes(plan)
    plan.raise_if_refused()


@pytest.mark.parametrize("key", KEYS)
def test_a_change_of_any_key_is_either_planned_or_refused_by_name(key: str) -> None:
    old = BESIDE.get(key, {})
    plan = plan_reload(load(old), load({**old, key: other_value(key)}))
    section = key.partition(".")[0]
    refused = {problem.key for problem in plan.refused}
    assert changes(plan)
    if section in ("queue", "retry", "models", "usage") and key not in RESTART:
        assert key in getattr(plan, section)
        assert refused <= RESTART
    else:
        assert refused == {key}
        with pytest.raises(SettingsError, match=rf"{key}: .*restart"):
            plan.raise_if_refused()


def node(name: str, slots: int = 0) -> dict[str, object]:
    return {"name": name, "url": f"http://{name}", "slots": slots}


def test_nodes_that_come_go_and_change_are_told_apart() -> None:
    old = load({"nodes": [node("a"), node("b"), node("c")]})
    new = load({"nodes": [node("d"), node("c", slots=2), node("a")]})
    plan = plan_reload(old, new)
    assert [block.name for block in plan.nodes.added] == ["d"]
    assert [block.name for block in plan.nodes.removed] == ["b"]
    assert [(block.name, block.slots) for block in plan.nodes.changed] == [("c", 2)]
    assert not plan.keys
    assert not plan.refused


def test_keys_that_come_go_and_change_are_told_apart() -> None:
    def key(name: str, **more: object) -> dict[str, object]:
        return {"name": name, "key_env": name.upper(), **more}

    old = load({"keys": [key("a"), key("b"), key("c")]})
    new = load({"keys": [key("a"), key("c", max_running=2), key("d")]})
    plan = plan_reload(old, new)
    assert [block.name for block in plan.keys.added] == ["d"]
    assert [block.name for block in plan.keys.removed] == ["b"]
    assert [(block.name, block.max_running) for block in plan.keys.changed] == [("c", 2)]
    assert not plan.nodes


def test_the_order_of_nodes_is_no_change() -> None:
    old, new = load({"nodes": [node("a"), node("b")]}), load({"nodes": [node("b"), node("a")]})
    assert not changes(plan_reload(old, new))


def test_limits_and_a_port_together_say_which_of_them_is_refused() -> None:
    plan = plan_reload(load({}), load({"queue.max_size": 5, "server.port": 1}))
    assert plan.queue == ("queue.max_size",)
    assert [problem.key for problem in plan.refused] == ["server.port"]
    assert plan.settings.queue.max_size == 5
