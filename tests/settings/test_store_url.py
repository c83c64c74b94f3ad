"""URLs of stores: what redis-py can be told, and refusals that name what to write instead."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.connection import parse_url

from forebay.settings import SettingsError, load_settings
from forebay.settings.store_url import (
    COUNTS,
    KNOWN,
    SENTINEL,
    TIMES,
    TLS,
    BadStoreUrl,
    parse_store_url,
)


def told_by(url: str) -> dict[str, Any]:
    """Return what redis-py makes of a URL."""
    return dict(parse_url(url))  # type: ignore[no-untyped-call] # it has no types


def test_one_server() -> None:
    address = parse_store_url("rediss://app:p%40ss@Cache.example:7000/3?ssl_ca_certs=/etc/ca.pem")
    assert (address.kind, address.hosts, address.tls) == (
        "single",
        (("cache.example", 7000),),
        True,
    )
    assert (address.username, address.password, address.db) == ("app", "p@ss", 3)
    told = told_by(address.url)
    assert (told["host"], told["port"], told["db"]) == ("cache.example", 7000, 3)
    assert (told["username"], told["password"]) == ("app", "p@ss")
    assert told["ssl_ca_certs"] == "/etc/ca.pem"


@pytest.mark.parametrize(
    ("url", "host", "db"),
    [
        ("redis://cache", ("cache", 6379), 0),
        ("valkey://cache/2", ("cache", 6379), 2),
        ("redis://[::1]:7000", ("::1", 7000), 0),
        ("redis://cache?db=4", ("cache", 6379), 4),
        ("redis://cache/1?db=4", ("cache", 6379), 1),
    ],
)
def test_what_is_left_out_is_as_usual(url: str, host: tuple[str, int], db: int) -> None:
    address = parse_store_url(url)
    assert (address.hosts, address.db, address.tls) == ((host,), db, False)
    told = told_by(address.url)
    assert (told["host"], told["port"], told.get("db", 0)) == (*host, db)


def test_a_socket() -> None:
    address = parse_store_url("unix://:secret@/run/valkey/valkey.sock?db=2")
    assert (address.unix_path, address.db, address.hosts) == ("/run/valkey/valkey.sock", 2, ())
    told = told_by(address.url)
    assert (told["path"], told["db"], told["password"]) == ("/run/valkey/valkey.sock", 2, "secret")


def test_sentinels() -> None:
    url = "rediss+sentinel://app:s3cret@a,b:5000,[::1]:5001/main/2?sentinel_password=other"
    address = parse_store_url(url)
    assert (address.kind, address.service, address.db) == ("sentinel", "main", 2)
    assert address.hosts == (("a", 26379), ("b", 5000), ("::1", 5001))
    assert (address.tls, address.password) == (True, "s3cret")
    assert (address.sentinel_username, address.sentinel_password) == ("", "other")
    assert address.url == "rediss://app:s3cret@a:26379/2"


def test_a_cluster() -> None:
    address = parse_store_url("redis+cluster://:s3cret@a:7000,b:7001?socket_timeout=1")
    assert (address.kind, address.hosts) == ("cluster", (("a", 7000), ("b", 7001)))
    assert address.url == "redis://:s3cret@a:7000?socket_timeout=1"
    assert told_by(address.url)["socket_timeout"] == 1.0


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://cache", "redis://127.0.0.1:6379/0"),
        ("cache:6379", "redis://127.0.0.1:6379/0"),
        ("redis+magic://cache", "redis+sentinel://"),
        ("redis://", "host:port"),
        ("redis://cache:0", "host:port"),
        ("redis://cache:70000", "host:port"),
        ("redis://cache:", "host:port"),
        ("redis://cac he", "%20"),
        ("redis://cache/x", "its number"),
        ("redis://cache/1/2", "redis://127.0.0.1:6379/0"),
        ("redis://a,b", "redis+cluster://host,host"),
        ("redis://a@b@c", "%40"),
        ("unix://run/valkey.sock", "unix:///run"),
        ("unix://", "unix:///run"),
        ("redis+sentinel://a:26379", "/service"),
        ("redis+sentinel://a/main/2/3", "/service"),
        ("redis+sentinel://a/main/x", "its number"),
        ("redis+sentinel://a,,b/main", "host:port"),
        ("redis+sentinel://a,a/main", "once"),
        ("redis+cluster://a/1", "leave out the path"),
        ("redis+cluster://" + ",".join(f"h{i}" for i in range(65)), "64 at most"),
    ],
)
def test_what_is_no_store_is_refused_with_what_to_write(url: str, named: str) -> None:
    with pytest.raises(BadStoreUrl) as caught:
        parse_store_url(url)
    assert named in caught.value.instead
    with pytest.raises(SettingsError, match=r"coordination\.url"):
        load_settings(None, {"coordination.url": url}, {})


@given(st.text("redis+clutn:/@,[]%?#0123 \\", max_size=40), st.sampled_from(["", "redis://"]))
def test_whatever_is_written_is_taken_or_refused(text: str, scheme: str) -> None:
    try:
        address = parse_store_url(scheme + text)
    except BadStoreUrl:
        return
    assert address.hosts or address.unix_path


@given(st.text("abc:/@?[]%", min_size=1, max_size=10))
def test_no_refusal_and_no_repr_holds_a_password(more: str) -> None:
    url = f"redis+sentinel://u:SECRET{more}@a/main"
    try:
        shown = repr(parse_store_url(url))
    except BadStoreUrl as error:
        shown = str(error)
    assert "SECRET" not in shown


def parameters(*kinds: type) -> set[str]:
    return {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}  # type: ignore[misc]


def test_all_that_are_known_here_are_known_there() -> None:
    plain = parameters(AbstractConnection, Connection, ConnectionPool)
    assert set(KNOWN) <= plain
    assert set(TLS) <= parameters(SSLConnection)


@pytest.mark.parametrize("name", [*KNOWN, *TLS])
def test_each_may_be_written(name: str) -> None:
    address = parse_store_url(f"rediss://cache?{name}=5")
    assert name == "db" or f"{name}=5" in address.url


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("redis://cache?nosuch=1", "an option behind its ? that is not known"),
        ("redis://cache?ssl_ca_certs=/ca.pem", "an option of TLS without TLS"),
        ("redis+cluster://cache?ssl_keyfile=k", "an option of TLS without TLS"),
        *((f"redis://cache?{name}=secret", f"a {name} that is not a number") for name in TIMES),
        *((f"redis://cache?{name}=1.5", f"a {name} that is not a number") for name in COUNTS),
        *((f"redis://cache?{name}=secret", "is not known") for name in SENTINEL),
        ("redis://:pa?ssecret@cache", "is not known"),
        ("unix:///run/v.sock?socket_timeout=", "a socket_timeout that is not a number"),
    ],
)
def test_what_redis_py_would_choke_on_is_refused_without_a_word_of_it(url: str, wrong: str) -> None:
    with pytest.raises(BadStoreUrl) as refused:
        parse_store_url(url)
    assert wrong in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "nosuch" not in str(refused.value)
