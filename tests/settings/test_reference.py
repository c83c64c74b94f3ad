"""The generated pages are up to date, and the example file means what it shows."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.settings import KeySettings, NodeSettings, Settings, explain, load_settings
from forebay.settings.addresses import without_password
from forebay.settings.example import as_toml, example_toml, json_schema
from forebay.settings.names import valid_keys
from forebay.settings.sources import parse_value

ROOT = Path(__file__).parents[2]


def test_the_example_file_loads_and_is_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(example_toml())
    assert load_settings(file, (), {}) == Settings()


def test_every_line_of_the_example_file_can_be_taken_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(re.sub(r"^#(?! )", "", example_toml(), flags=re.MULTILINE))
    settings = load_settings(file, (), {})
    node = NodeSettings(name="gpu1", url="http://127.0.0.1:11434")
    key = KeySettings(name="team-a", key_env="TEAM_A_KEY", user="team-a")
    assert settings == Settings(nodes=(node,), keys=(key,))


def test_every_setting_is_on_the_page_and_in_the_schema() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    for key in valid_keys():
        assert f"### `{key}`" in page or f"## [[{key}]]" in page, key
    schema = json.loads(json_schema())
    assert schema["additionalProperties"] is False
    for name, definition in schema["$defs"].items():
        assert definition["additionalProperties"] is False, name
        for key, field in definition["properties"].items():
            assert field["description"], f"{name}.{key}"


SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(SCALARS | st.lists(SCALARS) | st.dictionaries(st.text(), SCALARS))
def test_what_is_written_as_toml_is_read_back(value: object) -> None:
    assert parse_value(as_toml(value), takes_text=False) == value


@given(st.text("abc:/@?", min_size=1), st.text("xyz/?:", max_size=5))
def test_a_password_is_never_shown(user: str, more: str) -> None:
    shown = without_password(f"redis://{user.replace('/', '')}:SECRET@host/{more}?password=SECRET")
    assert "SECRET" not in shown


def test_the_words_name_nodes_keys_bounds_and_waits() -> None:
    flags = {
        "nodes": [{"name": "gpu1", "url": "http://gpu1:1", "slots": 2, "models": ["llama"]}],
        "keys": [{"name": "team-a", "key_env": "A", "max_running": 3, "admin": True}],
        "queue.max_wait_seconds": 7,
        "queue.max_size": 11,
        "queue.stream": "reject",
        "coordination.url": "redis://:hush@cache",
    }
    words = "\n".join(explain(load_settings(None, flags, {})))
    for part in ("gpu1", "2 at once", "llama", "team-a", "3 running", "an admin", "11 requests",
                 "7 s", "429", "504", "Streams do not wait", "redis://:***@cache"):  # fmt: skip
        assert part in words, part
    assert "hush" not in words


def test_the_words_tell_an_open_gateway_without_keys_to_make_one() -> None:
    assert "forebay keys new" in "\n".join(explain(load_settings(None, ["server.host=::"], {})))
    assert "forebay keys new" not in "\n".join(explain(Settings()))


@pytest.mark.parametrize("text", ["queue.enabled=false", "queue.max_size=0"])
def test_the_words_say_when_nobody_waits(text: str) -> None:
    assert "Nothing waits" in "\n".join(explain(load_settings(None, [text], {})))


@pytest.mark.parametrize(
    ("cap", "words"), [(5, "at most 5 prompts pending"), (0, "any number of prompts pending")]
)
def test_the_explanation_says_how_much_a_session_may_pile_up(cap: int, words: str) -> None:
    flags = [f"sessions.max_pending_prompts={cap}"]
    assert words in "\n".join(explain(load_settings(None, flags, {})))
