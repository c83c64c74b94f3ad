"""Flags over environment over file over defaults; nothing unknown anywhere."""

import json
import os
import string
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from forebay.settings import Origin, SettingsError, load_settings, load_with_origins
from forebay.settings.names import nearest, valid_keys, variable_of
from forebay.settings.sources import FILE_BYTES_MAX, line_of, parse_key, parse_value

SIZES = st.none() | st.integers(0, 1000)
ALPHABET = string.ascii_lowercase + "_."


def problems_of(
    *texts: str, environ: dict[str, str] | None = None, path: Path | None = None
) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(path, texts, environ or {})
    return str(caught.value)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "forebay.toml"
    file.write_text(text)
    return file


@given(file=SIZES, env=SIZES, text=SIZES, flag=SIZES)
@example(file=1, env=2, text=3, flag=4)
@example(file=1, env=2, text=0, flag=None)
def test_the_first_source_that_has_a_value_counts(
    tmp_path_factory: pytest.TempPathFactory,
    file: int | None,
    env: int | None,
    text: int | None,
    flag: int | None,
) -> None:
    path = tmp_path_factory.getbasetemp() / "precedence.toml"
    path.write_text("" if file is None else f"[queue]\nmax_size = {file}\n")
    environ = {} if env is None else {"FOREBAY_QUEUE__MAX_SIZE": str(env)}
    texts = [] if text is None else [f"queue.max_size={text}"]
    loaded = load_with_origins(path, texts, environ, {"queue.max_size": flag})
    order = [(flag, "flag"), (text, "flag"), (env, "env"), (file, "file"), (100, "default")]
    value, kind = next((value, kind) for value, kind in order if value is not None)
    assert (loaded.settings.queue.max_size, loaded.origins["queue.max_size"].kind) == (value, kind)


def test_a_source_changes_only_the_keys_that_it_names(tmp_path: Path) -> None:
    file = written(tmp_path, "[queue]\nmax_size = 1\nmax_per_user = 2\n")
    environ = {"FOREBAY_QUEUE": '{"max_size": 3}', "FOREBAY_QUEUE__KEEPALIVE_SECONDS": "4"}
    queue = load_settings(file, ["queue.full_status=503"], environ).queue
    assert (queue.max_size, queue.max_per_user) == (3, 2)
    assert (queue.keepalive_seconds, queue.full_status) == (4, 503)


def test_the_more_exact_of_two_variables_counts() -> None:
    environ = {"FOREBAY_QUEUE__MAX_SIZE": "2", "FOREBAY_QUEUE": "{max_size = 1}"}
    assert load_settings(None, (), environ).queue.max_size == 2


def test_the_last_of_two_flags_counts() -> None:
    assert load_settings(None, ["retry.attempts=2", "retry.attempts=4"], {}).retry.attempts == 4


def test_entries_of_a_table_are_set_one_by_one_or_all_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, '[models]\naliases = { a = "b", c = "d" }\n')
    one = load_settings(file, ["models.aliases.c=x", 'models.aliases."gpt-4.1"=y'], {})
    assert one.models.aliases == {"a": "b", "c": "x", "gpt-4.1": "y"}
    assert load_settings(file, ['models.aliases={e = "f"}'], {}).models.aliases == {"e": "f"}


def test_lists_and_tables_in_variables_are_json_or_toml() -> None:
    environ = {
        "FOREBAY_NODES": '[{"name": "a", "url": "http://a"}]',
        "FOREBAY_KEYS": '[{name = "k", key_env = "K"}]',
        "FOREBAY_QUEUE__PRIORITY": "weighted",
        "FOREBAY_QUEUE__WEIGHTS": '{"high": 9}',
        "FOREBAY_QUEUE__WEIGHTS__LOW": "2",
        "FOREBAY_QUEUE__PRIORITIES": "['high', 'normal', 'low']",
        "forebay_server__access_log": "false",
    }
    settings = load_settings(None, (), environ)
    assert [node.name for node in settings.nodes] == ["a"]
    assert [key.key_env for key in settings.keys] == ["K"]
    assert settings.queue.weights == {"high": 9, "low": 2}
    assert settings.server.access_log is False


def test_what_looks_like_a_number_stays_text_where_text_is_wanted() -> None:
    settings = load_settings(None, ["server.tls_cert=1.0", "server.tls_key='2'"], {})
    assert (settings.server.tls_cert, settings.server.tls_key) == ("1.0", "2")


def test_the_file_in_the_current_directory_is_read_when_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "[server]\nport = 1\n")
    monkeypatch.chdir(tmp_path)
    loaded = load_with_origins(None, (), {})
    assert (loaded.settings.server.port, loaded.path) == (1, Path("forebay.toml"))
    assert loaded.origins["server.port"] == Origin("file", "forebay.toml")


def test_the_environment_of_the_program_is_read_when_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FOREBAY_SERVER__PORT", "1234")
    assert load_settings(None, ()).server.port == 1234


def test_values_of_a_profile_say_so() -> None:
    loaded = load_with_origins(None, ["queue.profile=nexus", "queue.full_status=429"], {})
    assert loaded.origins["queue.timeout_status"] == Origin("profile", "nexus")
    assert loaded.origins["queue.full_status"].kind == "flag"
    assert loaded.origins["queue.max_size"].kind == "default"
    assert set(loaded.origins) == set(valid_keys())


def misspelt(key: str, at: int, letter: str) -> str:
    return key[: at % len(key)] + letter + key[at % len(key) + 1 :]


@given(st.sampled_from(valid_keys()), st.integers(0, 50), st.sampled_from(ALPHABET))
def test_a_misspelt_key_is_refused_wherever_it_is_and_a_valid_one_suggested(
    key: str, at: int, letter: str
) -> None:
    wrong = misspelt(key, at, letter)
    parts = wrong.split(".")
    mapping = any(wrong.startswith(f"{known}.") for known in valid_keys())
    assume(wrong not in valid_keys() and all(parts) and not mapping)
    assume("__" not in wrong.replace(".", "_"))  # a variable would say something else
    assume(wrong not in {known.partition(".")[0] for known in valid_keys()})
    text = problems_of(f"{wrong}=1")
    suggested = text.partition("did you mean ")[2].partition("?")[0]
    assert suggested in valid_keys(), text
    environ = {variable_of(wrong): "1"}
    assert f"did you mean {suggested} ({variable_of(suggested)})?" in problems_of(environ=environ)


@given(st.sampled_from(valid_keys()), st.integers(0, 50))
def test_one_letter_too_few_still_finds_a_key_with_that_last_name(key: str, at: int) -> None:
    section, _, field = key.rpartition(".")
    assume(len(field) > 5)
    index = at % len(field)
    found = nearest(f"{section}.{field[:index] + field[index + 1 :]}".lstrip("."), valid_keys())
    assert found == key


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("queu.max_size=1", "queue.max_size"),
        ("queue.maxsize=1", "queue.max_size"),
        ("port=1", "server.port"),
        ("server.prot=1", "server.port"),
        ("queue.max_size.x=1", "queue.max_size"),
        ("node=1", "nodes"),
        ("server.full_status=1", "queue.full_status"),
    ],
)
def test_the_nearest_name_is_the_one_that_was_meant(text: str, suggested: str) -> None:
    assert f"did you mean {suggested}?" in problems_of(text)


def test_a_misspelt_section_of_a_file_is_told_key_by_key(tmp_path: Path) -> None:
    text = problems_of(path=written(tmp_path, "[queu]\nmax_size = 1\n[servr]\n"))
    assert "queu.max_size" in text
    assert "did you mean queue.max_size?" in text
    assert "servr" in text


def test_a_misspelt_top_level_variable_is_not_ignored() -> None:
    text = problems_of(environ={"FOREBAY_QUEU__MAX_SIZE": "1", "FOREBAY_SERVER_PORT": "1"})
    assert "FOREBAY_QUEUE__MAX_SIZE" in text
    assert "FOREBAY_SERVER__PORT" in text


def test_a_variable_that_a_setting_names_for_a_secret_is_no_setting() -> None:
    environ = {"FOREBAY_TEAM_A_KEY": "x", "FOREBAY_GUARD_TOKEN": "y", "FOREBAY_GPU1_KEY": "z"}
    texts = [
        'keys=[{name = "a", key_env = "FOREBAY_TEAM_A_KEY"}]',
        'nodes=[{url = "http://a", api_key_env = "FOREBAY_GPU1_KEY"}]',
        "guard.token_env=FOREBAY_GUARD_TOKEN",
    ]
    assert load_settings(None, texts, environ).guard.token_env == "FOREBAY_GUARD_TOKEN"
    assert "FOREBAY_TEAM_A_KEY" in problems_of(environ=environ)


def test_an_unknown_variable_shows_nothing_of_its_value() -> None:
    environ = {"FOREBAY_TOKENS": json.dumps({"hush": "secret"})}
    text = problems_of(environ=environ)
    assert "hush" not in text
    assert "secret" not in text


def test_what_kubernetes_sets_for_a_service_called_forebay_is_not_ours() -> None:
    theirs = {
        "FOREBAY_SERVICE_HOST": "10.0.0.1",
        "FOREBAY_SERVICE_PORT": "7800",
        "FOREBAY_SERVICE_PORT_HTTP": "7800",
        "FOREBAY_PORT": "tcp://10.0.0.1:7800",
        "FOREBAY_PORT_7800_TCP": "tcp://10.0.0.1:7800",
        "FOREBAY_PORT_7800_TCP_ADDR": "10.0.0.1",
        "FOREBAY_WEB_PORT": "tcp://10.0.0.1:7800",
    }
    assert load_settings(None, (), theirs).server.port == 7800
    assert "did you mean server.port" in problems_of(environ={"FOREBAY_PORT": "7800"})


@pytest.mark.parametrize(
    ("content", "line", "column"),
    [
        (b"[queue]\nmax_size = \n", 2, 12),
        (b"[queue\n", 1, 7),
        (b"[queue]\nmax_size = [1,", 2, 15),
        (b"[queue]\na = 1\na = 2\n", 3, 6),
        (b'[server]\nhost = "\xff"\n', 2, 9),
    ],
)
def test_a_broken_file_is_told_by_name_line_and_column(
    tmp_path: Path, content: bytes, line: int, column: int
) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    assert f"{file}: line {line}, column {column}: " in problems_of(path=file)


def test_a_broken_file_does_not_hide_the_other_problems(tmp_path: Path) -> None:
    text = problems_of("server.port=x", path=written(tmp_path, "["))
    assert "line 1" in text
    assert "server.port" in text


def test_a_file_that_is_missing_deep_or_a_folder_is_refused_in_words(tmp_path: Path) -> None:
    assert "forebay config init" in problems_of(path=tmp_path / "none.toml")
    assert "cannot be read" in problems_of(path=tmp_path)
    assert "too deep" in problems_of(path=written(tmp_path, "x = " + "[" * 100_000))


def test_only_a_regular_file_of_a_sensible_size_is_read(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe.toml", tmp_path / "large.toml"
    os.mkfifo(pipe)  # to wait for its writer would be to wait for ever
    large.write_text("#" * (FILE_BYTES_MAX + 1))
    assert f"{pipe}: cannot be read: it is not a regular file" in problems_of(path=pipe)
    assert f"{large}: is larger than 1 MiB" in problems_of(path=large)
    large.write_text("#" * FILE_BYTES_MAX)
    assert load_settings(large, environ={}).queue.max_size == 100


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "forebay.toml"
    file.write_bytes(b"\xef\xbb\xbf[server]\nport = 5\n")
    assert load_settings(file, (), {}).server.port == 5


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("queue.max_size", "key=value"),
        ("=1", "key=value"),
        ("a b=1", "key=value"),
        ("queue=5", "is a section"),
        ("nodes.0.url=http://a", "list of blocks"),
        ("nodes=http://a", "[[nodes]]"),
        ("queue.weights=5", "is not a table"),
        ("queue.priorities=high", "is not a list"),
        ("server.port=nan", "is not a number"),
    ],
)
def test_a_flag_that_cannot_be_meant_is_refused_in_words(text: str, part: str) -> None:
    assert part in problems_of(text)


def test_a_name_with_dots_and_no_quotes_is_explained(tmp_path: Path) -> None:
    file = written(tmp_path, '[models.aliases]\ngpt-4.1 = "llama"\n')
    assert "quotes" in problems_of(path=file)


@given(st.text())
def test_any_text_at_all_becomes_a_value_and_text_stays_text(raw: str) -> None:
    assert isinstance(parse_value(raw, takes_text=True), str)
    parse_value(raw, takes_text=False)
    parse_key(raw)


@given(st.recursive(st.integers() | st.booleans() | st.text("abc é\"'\\"), st.lists, max_leaves=5))
def test_a_value_written_as_json_is_read_back(value: object) -> None:
    assert parse_value(json.dumps(value), takes_text=False) == value


@given(st.dictionaries(st.text(), st.text(), max_size=4), st.lists(st.text(), max_size=3))
def test_no_text_breaks_the_loader(environ: dict[str, str], texts: list[str]) -> None:
    prefixed = {f"FOREBAY_{name}": value for name, value in environ.items()}
    try:
        load_settings(None, texts, prefixed)
    except SettingsError as error:
        assert error.problems  # noqa: PT017 - either end is fine, any other error is not


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("server.port", 1),
        ("queue.max_size", 4),
        ("queue.fairness", 3),
        ("nodes[0].url", 8),
        ("nodes[1].url", 11),
        ("nodes[1].kind", 10),
        ("models.aliases.gpt-4.1", 14),
        ("jobs.attempts", None),
    ],
)
def test_a_line_is_found_however_the_key_is_written(key: str, line: int | None) -> None:
    text = (
        "server.port = 1\n\n[queue] # how long\nmax_size=3\n"
        'text = """\nmax_size = 9"""\n[[nodes]]\n"url" = "http://a"\n\n[[nodes]]\nurl = "b"\n\n'
        '[models.aliases]\n"gpt-4.1" = "x"\n'
    )
    assert line_of(text, key) == line
