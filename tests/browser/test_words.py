"""The two languages have the same words, all of them used, and none missing."""

from __future__ import annotations

import re
from pathlib import Path

from forebay.gateway.routes.queue import REASONS
from forebay.nodes.health import WAYS_TO_FAIL

STATIC = Path(__file__).parents[2] / "src/forebay/dashboard/static"
ENTRY = re.compile(r'^  (\w+): "((?:[^"\\]|\\.)*)",$', re.M)
LINES_MAX = 410


def words(language: str) -> dict[str, str]:
    return dict(ENTRY.findall((STATIC / f"words_{language}.js").read_text()))


def sources() -> str:
    """Everything that may use a word."""
    files = [path for path in STATIC.iterdir() if path.suffix in (".js", ".html")]
    return "\n".join(path.read_text() for path in files if not path.name.startswith("words_"))


def blanks(text: str) -> set[str]:
    """What is to be filled in."""
    return set(re.findall(r"\{(\w+)", text))


def test_both_languages_have_the_same_words_with_the_same_blanks() -> None:
    english, japanese = words("en"), words("ja")
    assert list(english) == list(japanese)
    assert len(english) > 150
    assert {key for key in english if blanks(english[key]) != blanks(japanese[key])} == set()


def test_japanese_is_japanese() -> None:
    same = {key for key, text in words("en").items() if words("ja")[key] == text}
    assert same <= {
        "gpu",
        "vram",
        "cursor_value",
        "bytes_mib",
        "bytes_gib",
        "percent",
        "failure_of_kind",
    }


def test_every_word_that_is_used_exists_and_every_word_is_used() -> None:
    text, known = sources(), set(words("en"))
    named = set(re.findall(r'data-(?:word|label)="(\w+)"', text))
    quoted = set(re.findall(r'"([a-z]\w*)"', text))  # also such as in a list of keys
    called = set(re.findall(r'\bword\(\s*"(\w+)"', text))
    prefixes = set(re.findall(r"word\(\s*`(\w+_)\$", text))
    prefixes |= set(re.findall(r'wordOr\("(\w+_)"', text))
    assert (named | called) - known == set()
    for prefix in prefixes:
        assert any(key.startswith(prefix) for key in known), prefix
    used = named | quoted | {key for key in known if key.startswith(tuple(prefixes))}
    assert known - used == set()


def test_every_way_to_fail_and_every_reason_to_wait_has_its_words() -> None:
    known = words("en")
    for kind in WAYS_TO_FAIL:
        assert f"failure_{kind}" in known
    for reason, text in REASONS.items():
        if reason is not None:
            assert known[f"reason_{reason}"] == text


def test_every_file_of_the_page_is_small_and_says_what_it_is() -> None:
    for path in STATIC.iterdir():
        lines = path.read_text().splitlines()
        assert len(lines) <= LINES_MAX, path.name
        if path.suffix == ".js":
            assert lines[0].startswith("// "), path.name
            assert "innerHTML" not in path.read_text(), path.name
