"""What the registry of nodes knows, and that the settings know every kind there is."""

from __future__ import annotations

import pytest

from forebay.nodes import ADAPTERS
from forebay.settings import NodeSettings, SettingsError, parse_node
from forebay.settings.nodes import KINDS


def test_the_settings_know_every_kind_of_node_and_no_other() -> None:
    assert set(KINDS) == {"auto", *ADAPTERS}


@pytest.mark.parametrize(
    ("written", "kind"),
    [("openai", "openai-compatible"), ("llama.cpp", "llama-cpp"), ("Ollama", "ollama")],
)
def test_a_kind_may_be_written_as_people_write_it(written: str, kind: str) -> None:
    assert NodeSettings(url="http://127.0.0.1:1", kind=written).kind == kind


def test_an_unknown_kind_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingsError, match="vllm"):
        parse_node({"url": "http://127.0.0.1:1", "kind": "vlllm"})
