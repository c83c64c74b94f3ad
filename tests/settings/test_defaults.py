"""The names and defaults that the design binds, and docstrings under all of them."""

import tomllib

import pytest
from pydantic import ValidationError

from forebay import settings as package
from forebay.core import Options, parse_priority
from forebay.settings import QueueSettings, Settings
from forebay.settings.names import blocks, sections
from forebay.settings.places import default_database
from forebay.settings.queue import KEY_OF_OPTION

DESIGNED = """
[server]
host="127.0.0.1"
port=7800
body_max_bytes=33554432
header_seconds=10
body_seconds=60
idle_seconds=75
write_seconds=30
connections_max=10000
workers=1
shutdown_seconds=30
allowed_hosts=[]
cors_origins=[]
trusted_proxies=[]
tls_cert=""
tls_key=""
public_status=false
access_log=true
[queue]
enabled=true
max_size=100
max_bytes=268435456
max_per_user=0
max_wait_seconds=60
full_status=429
timeout_status=504
profile="standard"
when_full="class"
stream="queue"
keepalive_seconds=15
fairness="tokens"
priorities=["high","normal","low"]
priority="strict"
weights={}
aging_seconds=0
swap_wait_seconds=15
swap_share=0.1
offline_wait_seconds=30
first_byte_seconds=120
run_seconds=600
chunk_gap_seconds=60
answer_max_bytes=268435456
[retry]
attempts=3
budget=0.1
stream="error"
[models]
aliases={}
fallbacks={}
[sessions]
max_pending_prompts=5
prompt_deadline_ms=0
max_sessions=1000
idle_seconds=86400
database=""
[jobs]
database=""
files_folder=""
max_queue_depth=500
modules=[]
vram_budgets={}
available_vram_gb=0
vram_refresh_seconds=10
max_type_wait_seconds=300
on_interrupt="fail"
attempts=3
lease_seconds=30
bypass_workers=32
webhook_url=""
retention_days=30
webhook_secret_env=""
[usage]
retention_days=30
[guard]
token_env=""
[coordination]
url=""
advertise=""
lease_seconds=5
"""

BLOCKS = {
    "nodes": {"name": "gpu1", "url": "http://127.0.0.1:11434", "kind": "auto", "slots": "auto",
              "model_slots": {}, "models": (), "api_key_env": "", "connect_seconds": 5.0},
    "keys": {"name": "team-a", "key_env": "TEAM_A_KEY", "key_sha256": "", "user": "team-a",
             "trust_user": False, "max_priority": "high", "models": (), "max_running": 0,
             "requests_per_minute": 0, "tokens_per_minute": 0, "tokens_per_day": 0,
             "weight": 1.0, "share_prefixes": False, "admin": False},
}  # fmt: skip
GIVEN = {"name", "url", "key_env", "user"}


def test_sections_keys_and_defaults_are_those_of_the_design() -> None:
    designed = tomllib.loads(DESIGNED)
    for name, values in designed.items():
        defaults = getattr(Settings(), name).model_dump()
        if name == "jobs":
            assert defaults["database"] == default_database()  # what "" means
            defaults["database"] = sections()[name]["database"].default
        lists = {key: list(value) for key, value in defaults.items() if isinstance(value, tuple)}
        assert defaults | lists == values, name
    assert set(sections()) == set(designed)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_has_the_keys_and_defaults_of_the_design(name: str) -> None:
    expected = BLOCKS[name]
    given = {key: value for key, value in expected.items() if key in GIVEN}
    assert blocks()[name].model_validate(given).model_dump() == expected


def test_every_field_says_what_it_means() -> None:
    for name, section in Settings.model_fields.items():
        assert section.description, name
        for key, field in (sections().get(name) or blocks()[name].model_fields).items():
            assert field.description, f"{name}.{key}"


def test_every_duration_says_its_unit() -> None:
    for name, fields in sections().items():
        for key, field in fields.items():
            if key.endswith("_seconds"):
                assert "in seconds" in " ".join((field.description or "").split()), f"{name}.{key}"


def test_settings_are_frozen_through_and_through() -> None:
    settings = Settings()
    for target, key in ((settings, "server"), (settings.server, "port")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(target, key, getattr(target, key))


def test_making_the_model_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER", '{"port": 1}')
    monkeypatch.setenv("FOREBAY_SERVER__PORT", "1")
    assert Settings().server.port == 7800


def test_the_options_of_the_default_queue_are_the_defaults_of_the_core() -> None:
    assert QueueSettings().options() == Options()


def test_every_choice_about_the_queue_reaches_the_core() -> None:
    queue = QueueSettings(
        enabled=False,
        max_size=7,
        max_bytes=8,
        max_per_user=9,
        when_full="displace",
        max_wait_seconds=1.5,
        stream="reject",
        priorities=("urgent", "normal"),
        priority="weighted",
        weights={"urgent": 3.0},
        aging_seconds=2.5,
        fairness="round_robin",
        swap_wait_seconds=3.5,
        swap_share=0.5,
        offline_wait_seconds=4.5,
    )
    options = queue.options()
    assert options == Options(
        enabled=False,
        max_size=7,
        bytes_max=8,
        per_user_max=9,
        when_full="displace",
        wait_s_max=1.5,
        queue_streams=False,
        priorities=("urgent", "normal"),
        class_order="weighted",
        class_weights={"urgent": 3.0},
        aging_s=2.5,
        fairness="round_robin",
        swap_wait_s=3.5,
        swap_share=0.5,
        offline_wait_s=4.5,
    )
    for option, key in KEY_OF_OPTION.items():
        assert getattr(options, option) != getattr(Options(), option), f"{key} is not tried here"


def test_the_nexus_profile_sets_what_its_specification_says() -> None:
    queue = QueueSettings(profile="nexus")
    assert (queue.full_status, queue.timeout_status, queue.max_wait_seconds) == (503, 503, 30)
    assert (queue.stream, queue.when_full, queue.fairness) == ("reject", "reject", "fifo")
    assert parse_priority("low", queue.priorities) == "normal"
    assert parse_priority("high", queue.priorities) == "high"
    assert not queue.options().queue_streams


def test_a_key_that_is_set_wins_over_the_profile_even_with_the_usual_value() -> None:
    queue = QueueSettings.model_validate(
        {"profile": "nexus", "full_status": 429, "priorities": ["high", "normal", "low"]}
    )
    assert (queue.full_status, queue.timeout_status) == (429, 503)
    assert parse_priority("low", queue.priorities) == "low"


def test_everything_offered_exists_and_is_documented() -> None:
    assert len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__doc__, name
