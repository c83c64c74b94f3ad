"""What the settings refuse, each with the dotted key and a way out."""

import os
from collections.abc import Mapping
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.settings import Settings, SettingsError, digest_of, load_settings

NODE = {"name": "gpu1", "url": "http://127.0.0.1:11434"}
KEY = {"name": "team-a", "key_env": "TEAM_A_KEY"}
DIGEST = "ab" * 32
LONG = "x" * 65


def load(flags: Mapping[str, object]) -> Settings:
    return load_settings(None, flags, {})


def problem_keys(flags: Mapping[str, object]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(flags)
    for problem in caught.value.problems:
        assert problem.wrong
        assert problem.instead
        assert problem.key in str(caught.value)
    return [problem.key for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("server.host", ""),
        ("server.host", "http://127.0.0.1"),
        ("server.host", "[::1]"),
        ("server.host", "127.0.0.256"),
        ("server.host", "a b"),
        ("server.port", -1),
        ("server.port", 65_536),
        ("server.port", "7800"),
        ("server.port", True),
        ("server.port", 7800.0),
        ("server.body_max_bytes", 0),
        ("server.header_seconds", 0),
        ("server.body_seconds", inf),
        ("server.idle_seconds", nan),
        ("server.write_seconds", -1),
        ("server.connections_max", 0),
        ("server.workers", 0),
        ("server.workers", 257),
        ("server.workers", "all"),
        ("server.workers", True),
        ("server.workers", 2.0),
        ("server.shutdown_seconds", inf),
        ("server.public_status", 1),
        ("server.access_log", "yes"),
        ("queue.max_size", -1),
        ("queue.max_size", 10**19),
        ("queue.max_size", True),
        ("queue.max_per_user", "3"),
        ("queue.max_bytes", 1.5),
        ("queue.max_wait_seconds", nan),
        ("queue.max_wait_seconds", -0.5),
        ("queue.full_status", 399),
        ("queue.timeout_status", 600),
        ("queue.profile", "fast"),
        ("queue.when_full", "drop"),
        ("queue.keepalive_seconds", inf),
        ("queue.fairness", "lifo"),
        ("queue.priorities", []),
        ("queue.priorities", ["normal", "normal"]),
        ("queue.priorities", ["high", "low"]),
        ("queue.priorities", ["High", "normal"]),
        ("queue.priorities", "normal"),
        ("queue.first_byte_seconds", 0),
        ("queue.run_seconds", inf),
        ("queue.chunk_gap_seconds", nan),
        ("retry.attempts", 0),
        ("retry.budget", 1.1),
        ("retry.budget", -0.1),
        ("retry.budget", nan),
        ("sessions.max_sessions", 0),
        ("sessions.database", "mysql://x"),
        ("jobs.database", "forebay.db"),
        ("jobs.attempts", 0),
        ("jobs.available_vram_gb", inf),
        ("jobs.lease_seconds", 0.5),
        ("jobs.lease_seconds", 100_000),
        ("jobs.webhook_url", "ftp://a"),
        ("jobs.webhook_url", "http://user:pw@a/"),
        ("jobs.webhook_url", "http://a/#x"),
        ("jobs.webhook_secret_env", "my secret"),
        ("guard.token_env", "abc-def"),
        ("coordination.url", "http://127.0.0.1"),
        ("coordination.lease_seconds", 0),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_key(key: str, value: object) -> None:
    assert problem_keys({key: value}) == [key]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("server.port", 0),
        ("server.port", 65_535),
        ("server.host", "::"),
        ("server.host", "gpu_box.local"),
        ("server.shutdown_seconds", 0),
        ("queue.max_size", 0),
        ("queue.max_wait_seconds", inf),
        ("queue.max_wait_seconds", 0),
        ("queue.full_status", 400),
        ("queue.timeout_status", 599),
        ("queue.keepalive_seconds", 0),
        ("queue.priorities", ["normal"]),
        ("retry.attempts", 1),
        ("retry.budget", 0),
        ("retry.budget", 1),
        ("coordination.url", "rediss://user:secret@cache:6379/0"),
        ("jobs.database", "postgresql+asyncpg://app@db/jobs"),
    ],
)
def test_a_value_at_the_edge_of_the_bounds_is_taken(key: str, value: object) -> None:
    section, _, field = key.partition(".")
    taken = getattr(getattr(load({key: value}), section), field)
    assert taken == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("value", [0, inf, "inf", "Infinity"])
def test_no_limit_of_pending_prompts_is_written_as_zero_or_infinity(value: object) -> None:
    assert load({"sessions.max_pending_prompts": value}).sessions.max_pending_prompts == 0


@pytest.mark.parametrize("value", [-1, -inf, nan, 2.5, "5.5", "many", True, [5], -0.5])
def test_a_cap_of_pending_prompts_that_is_no_whole_number_is_refused(value: object) -> None:
    assert problem_keys({"sessions.max_pending_prompts": value}) == ["sessions.max_pending_prompts"]


@given(st.integers(min_value=0, max_value=10**6))
def test_any_whole_cap_of_pending_prompts_is_taken_as_it_is(cap: int) -> None:
    for written in (cap, float(cap)):
        assert load({"sessions.max_pending_prompts": written}).sessions.max_pending_prompts == cap


@pytest.mark.parametrize(
    "url",
    [
        "", "gpu1", "gpu1:11434", "ftp://gpu1", "http://", "http://:80", "http:///v1",
        "http://user:secret@gpu1", "http://@gpu1", "http://gpu1/v1", "http://gpu1/../x",
        "http://gpu1//", "http://gpu1?x=1", "http://gpu1?", "http://gpu1#a", "http://gpu1:0",
        "http://gpu1:65536", "http://gpu1:x", "http://gpu1:", "http://gpu 1", "http://gpu1\n",
        "http://gpu1\t.x", "http://gpu1\\@evil", "http://[::1", "http://gpü1", "http://gpu%31",
        "http://-gpu1", "http://1.2.3.4.5", " http://gpu1", "http://gpu1..x",
    ],
)  # fmt: skip
def test_a_node_needs_a_plain_url(url: str) -> None:
    assert problem_keys({"nodes": [{"name": "a", "url": url}]}) == ["nodes[0].url"]


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://127.0.0.1:11434/", "http://127.0.0.1:11434"),
        ("HTTPS://GPU1.example", "https://gpu1.example"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://my_node:1", "http://my_node:1"),
    ],
)
def test_a_url_is_kept_in_its_plain_form(url: str, plain: str) -> None:
    (node,) = load({"nodes": [{"url": url}]}).nodes
    assert node.url == plain
    assert node.name


@pytest.mark.parametrize("name", ["", "a b", "é", LONG, "a/b", "a\n", "*"])
def test_names_of_nodes_and_keys_are_plain(name: str) -> None:
    blocks = {"nodes": [NODE | {"name": name}], "keys": [KEY | {"name": name}]}
    assert problem_keys(blocks) == ["nodes[0].name", "keys[0].name"]


def test_names_are_unique() -> None:
    assert problem_keys({"nodes": [NODE, NODE]}) == ["nodes[1].name"]
    again = KEY | {"key_env": "OTHER"}
    assert problem_keys({"keys": [KEY, again]}) == ["keys[1].name"]


def test_two_keys_may_not_share_one_secret() -> None:
    assert problem_keys({"keys": [KEY, KEY | {"name": "b"}]}) == ["keys[1].key_env"]
    one = {"name": "a", "key_sha256": DIGEST}
    assert problem_keys({"keys": [one, {"name": "b", "key_sha256": DIGEST.upper()}]}) == [
        "keys[1].key_sha256"
    ]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"key_env": ""}, "key_env"),
        ({"key_sha256": DIGEST}, "key_sha256"),
        ({"key_env": "", "key_sha256": "fb-not-a-digest"}, "key_sha256"),
        ({"key_env": "", "key_sha256": DIGEST + "0"}, "key_sha256"),
        ({"key_env": "", "key_sha256": digest_of("")}, "key_sha256"),
        ({"max_priority": "urgent"}, "max_priority"),
        ({"weight": 0}, "weight"),
        ({"weight": inf}, "weight"),
        ({"max_running": -1}, "max_running"),
        ({"models": ["a", "a"]}, "models"),
        ({"user": "a\nb"}, "user"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(change: dict[str, object], where: str) -> None:
    assert problem_keys({"keys": [KEY | change]}) == [f"keys[0].{where}"]


def test_a_cap_that_the_profile_reads_as_normal_is_no_contradiction() -> None:
    low = [KEY | {"max_priority": "low"}]
    assert load({"queue.profile": "nexus", "keys": low}).keys[0].max_priority == "low"
    two = {"queue.priorities": ["high", "normal"], "keys": low}
    assert problem_keys(two) == ["keys[0].max_priority"]


def test_workers_share_a_queue_in_one_way_only() -> None:
    store = {"coordination.url": "redis://127.0.0.1:6379/0"}
    for workers in (2, "auto"):
        assert problem_keys({**store, "server.workers": workers}) == ["server.workers"]
    assert load({**store, "server.workers": 1}).server.worker_count() == 1


def test_as_many_workers_as_there_are_cpus_to_use() -> None:
    assert load({"server.workers": 3}).server.worker_count() == 3
    assert load({"server.workers": "auto"}).server.worker_count() == len(os.sched_getaffinity(0))


def test_tls_needs_both_of_its_files() -> None:
    assert problem_keys({"server.tls_cert": "a.pem"}) == ["server.tls_key"]
    assert problem_keys({"server.tls_key": "a.pem"}) == ["server.tls_cert"]
    assert load({"server.tls_key": "a", "server.tls_cert": "b"}).server.tls_cert == "b"


def test_weights_are_for_weighted_classes_that_exist() -> None:
    assert problem_keys({"queue.weights": {"high": 2}}) == ["queue.weights"]
    weighted = {"queue.priority": "weighted"}
    assert problem_keys(weighted | {"queue.weights": {"urgent": 2}}) == ["queue.weights.urgent"]
    assert problem_keys(weighted | {"queue.weights": {"high": 0}}) == ["queue.weights.high"]
    assert load(weighted | {"queue.weights": {"high": 2}}).queue.weights == {"high": 2}


@pytest.mark.parametrize(
    ("aliases", "fallbacks", "field"),
    [
        ({"a": "a"}, {}, "aliases"),
        ({"a": "b", "b": "c", "c": "a"}, {}, "aliases"),
        ({}, {"a": ["a"]}, "fallbacks"),
        ({}, {"a": ["x", "b"], "b": ["y", "a"]}, "fallbacks"),
        ({"a": "b"}, {"b": ["a"]}, "fallbacks"),
        ({}, {"a": ["b"], "b": ["c"], "c": ["b"]}, "fallbacks"),
    ],
)
def test_models_that_lead_in_a_loop_are_refused(
    aliases: dict[str, str], fallbacks: dict[str, list[str]], field: str
) -> None:
    models = {"models.aliases": aliases, "models.fallbacks": fallbacks}
    assert problem_keys(models) == [f"models.{field}"]


@given(st.dictionaries(st.integers(0, 30), st.lists(st.integers(0, 30), max_size=4, unique=True)))
def test_fallbacks_that_only_lead_upwards_are_taken(steps: dict[int, list[int]]) -> None:
    upwards = {
        f"m{model}": [f"m{target}" for target in targets if target > model]
        for model, targets in steps.items()
    }
    fallbacks = load({"models.fallbacks": upwards}).models.fallbacks
    assert fallbacks == {model: tuple(targets) for model, targets in upwards.items()}


@given(st.lists(st.integers(0, 50), min_size=1, unique=True), st.data())
def test_a_ring_is_found_wherever_it_is(ring: list[int], data: st.DataObject) -> None:
    names = [f"m{number}" for number in ring]
    steps = {name: [f"dead-end-{name}"] for name in names}
    for name, following in zip(names, names[1:] + names[:1], strict=True):
        steps[name].insert(data.draw(st.integers(0, 1)), following)
    assert problem_keys({"models.fallbacks": steps}) == ["models.fallbacks"]


def test_a_long_chain_of_aliases_is_no_trouble() -> None:
    chain = {f"m{number}": f"m{number + 1}" for number in range(5000)}
    assert load({"models.aliases": chain}).models.aliases == chain


@pytest.mark.parametrize(
    ("key", "value", "taken"),
    [
        ("allowed_hosts", ["Chat.Example", "10.0.0.1"], ("chat.example", "10.0.0.1")),
        ("cors_origins", ["*", "https://chat.example"], ("*", "https://chat.example")),
        ("trusted_proxies", ["10.0.0.1", "fd00::/8"], ("10.0.0.1/32", "fd00::/8")),
    ],
)
def test_lists_of_addresses_are_taken(key: str, value: object, taken: tuple[str, ...]) -> None:
    assert getattr(load({f"server.{key}": value}).server, key) == taken


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allowed_hosts", "http://a"),
        ("allowed_hosts", "a:80"),
        ("cors_origins", "chat.example"),
        ("cors_origins", "https://chat.example/x"),
        ("trusted_proxies", "proxy"),
        ("trusted_proxies", "10.0.0.0/33"),
    ],
)
def test_an_address_that_is_none_is_refused(key: str, value: str) -> None:
    assert problem_keys({f"server.{key}": [value]}) == [f"server.{key}[0]"]


def test_an_option_is_named_as_it_was_typed() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, (), {}, flags={"server.port": 99999})
    (problem,) = caught.value.problems
    assert problem.where == "flag --port"


def test_all_problems_are_told_together(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_text('[queue]\nmax_sise = 1\nfull_status = 1\n[[nodes]]\nnam = "a"\n')
    with pytest.raises(SettingsError) as caught:
        load_settings(file, ["server.port=70000"], {"FOREBAY_QUEU__MAX_SIZE": "1"})
    problems = {problem.key: problem for problem in caught.value.problems}
    assert set(problems) == {
        "queue.max_sise", "queu.max_size", "queue.full_status", "server.port", "nodes[0].nam",
        "nodes[0].url",
    }  # fmt: skip
    assert problems["queue.max_sise"].where == f"file {file}:2"
    assert problems["queue.full_status"].where == f"file {file}:3"
    assert problems["server.port"].where == "flag --set server.port"
    assert problems["queu.max_size"].where == "env FOREBAY_QUEU__MAX_SIZE"
    assert "6 problems" in str(caught.value)
    assert "did you mean nodes[0].name?" in str(caught.value)


def test_no_message_holds_a_secret() -> None:
    secret = "s3cret-value"
    flags = {
        "nodes": [{"name": "a", "url": f"http://user:{secret}@gpu1", "api_key_env": f"{secret}!"}],
        "keys": [{"name": "k", "key": secret, "key_sha256": secret}],
        "coordination.url": f"mysql://u:{secret}@h",
        "jobs.database": f"mysql://u:{secret}@h",
        "guard.token_env": f"{secret}!",
        "sessions.database": [secret],
        "queue.weights": {"high": secret},
    }
    with pytest.raises(SettingsError) as caught:
        load(flags)
    assert len(caught.value.problems) >= 8
    assert secret not in str(caught.value)
