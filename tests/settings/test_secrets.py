"""Secrets are read from the environment late, and shown nowhere."""

from collections.abc import Mapping
from hashlib import sha256

import pytest

from forebay.settings import (
    NodeSettings,
    Settings,
    SettingsError,
    load_settings,
    node_api_key,
    read_secret,
    resolve_keys,
)

SECRET = "fb-hush-hush"
DIGEST = sha256(SECRET.encode()).hexdigest()


def with_keys(*keys: Mapping[str, object], profile: str = "standard") -> Settings:
    return load_settings(None, {"keys": list(keys), "queue.profile": profile}, {})


def test_a_key_of_a_variable_becomes_its_digest() -> None:
    settings = with_keys({"name": "a", "key_env": "A", "weight": 2, "admin": True})
    (key,) = resolve_keys(settings, {"A": SECRET})
    assert (key.name, key.user, key.sha256) == ("a", "a", DIGEST)
    assert (key.weight, key.admin, key.trust_user, key.models) == (2, True, False, ())


def test_a_key_given_by_its_digest_needs_no_variable() -> None:
    settings = with_keys({"name": "a", "key_sha256": DIGEST.upper(), "user": "anna"})
    (key,) = resolve_keys(settings, {})
    assert (key.sha256, key.user) == (DIGEST, "anna")


@pytest.mark.parametrize("environ", [{}, {"A": ""}, {"A": f"{SECRET}\n"}, {"A": f" {SECRET}"}])
def test_a_variable_without_a_usable_key_is_named(environ: dict[str, str]) -> None:
    settings = with_keys({"name": "a", "key_env": "A"}, {"name": "b", "key_env": "MISSING_TOO"})
    with pytest.raises(SettingsError) as caught:
        resolve_keys(settings, environ)
    assert [problem.key for problem in caught.value.problems] == [
        "keys[0].key_env", "keys[1].key_env",
    ]  # fmt: skip
    assert "variable A " in str(caught.value)
    assert "MISSING_TOO" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_two_variables_with_the_same_key_are_refused() -> None:
    settings = with_keys({"name": "a", "key_env": "A"}, {"name": "b", "key_sha256": DIGEST})
    with pytest.raises(SettingsError, match="b is the same key as a"):
        resolve_keys(settings, {"A": SECRET})


def test_a_cap_that_the_profile_reads_as_normal_is_normal_when_resolved() -> None:
    low = {"name": "a", "key_env": "A", "max_priority": "low"}
    assert resolve_keys(with_keys(low), {"A": SECRET})[0].max_priority == "low"
    nexus = with_keys(low, profile="nexus")
    assert resolve_keys(nexus, {"A": SECRET})[0].max_priority == "normal"


def test_the_key_of_a_node_comes_from_its_variable() -> None:
    node = NodeSettings(name="gpu1", url="http://gpu1", api_key_env="GPU1_KEY")
    assert node_api_key(node, {"GPU1_KEY": SECRET}) == SECRET
    assert node_api_key(NodeSettings(url="http://gpu1"), {}) is None
    with pytest.raises(SettingsError, match=r"gpu1.*GPU1_KEY is not set"):
        node_api_key(node, {})


def test_a_setting_that_names_no_variable_has_no_secret() -> None:
    assert read_secret("guard.token_env", "", {}) is None
    assert read_secret("guard.token_env", "T", {"T": "x"}) == "x"


def test_the_environment_of_the_program_is_read_when_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_KEY_OF_A_TEST", SECRET)
    settings = with_keys({"name": "a", "key_env": "A_KEY_OF_A_TEST"})
    assert resolve_keys(settings)[0].sha256 == DIGEST


def test_no_repr_holds_a_secret() -> None:
    flags = {
        "keys": [{"name": "a", "key_sha256": DIGEST}],
        "jobs.database": f"postgresql://app:{SECRET}@db/jobs",
        "sessions.database": f"postgresql://app:{SECRET}@db/sessions",
        "coordination.url": f"redis://:{SECRET}@cache",
    }
    settings = load_settings(None, flags, {})
    shown = repr(settings) + str(settings) + repr(resolve_keys(settings, {}))
    assert SECRET not in shown
    assert DIGEST not in shown
    assert settings.jobs.database.endswith("@db/jobs")
