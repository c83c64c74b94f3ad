"""URLs of stores: what redis-py can be given, and refusals that name what to write instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.connection import parse_url

from forebay.settings import SettingsError, load_settings
from forebay.settings.store_url import BadStoreUrl, parse_store_url


@pytest.mark.parametrize(
    ("url", "given", "hosts"),
    [
        ("redis://cache", "redis://cache", (("cache", 6379),)),
        ("valkey://cache/2", "redis://cache/2", (("cache", 6379),)),
        ("redis://[::1]:7000", "redis://[::1]:7000", (("::1", 7000),)),
        ("valkeys://app:p%40ss@c:7000/3?ssl_ca_certs=/ca.pem",
         "rediss://app:p%40ss@c:7000/3?ssl_ca_certs=/ca.pem", (("c", 7000),)),
        ("unix://:secret@/run/v.sock?db=2", "unix://:secret@/run/v.sock?db=2", ()),
    ],
)  # fmt: skip
def test_one_server_is_left_to_redis_py(
    url: str, given: str, hosts: tuple[tuple[str, int], ...]
) -> None:
    address = parse_store_url(url)
    assert (address.url, address.hosts, address.service) == (given, hosts, "")
    assert parse_url(address.url)  # type: ignore[no-untyped-call] # it has no types


def test_sentinels() -> None:
    url = "rediss+sentinel://app:s3cret@a,b:5000,[::1]:5001/main/2?sentinel_password=o&protocol=3"
    address = parse_store_url(url)
    assert address.hosts == (("a", 26379), ("b", 5000), ("::1", 5001))
    assert (address.service, address.url) == ("main", "rediss://app:s3cret@a/2?protocol=3")
    assert (address.sentinel_username, address.sentinel_password) == ("", "o")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://cache", "redis://127.0.0.1:6379/0"),
        ("cache:6379", "redis://127.0.0.1:6379/0"),
        ("redis+cluster://cache", "redis+sentinel://"),
        ("redis://", "host:port"),
        ("redis://cache:0", "host:port"),
        ("redis://cache:70000", "host:port"),
        ("redis://cache:", "host:port"),
        ("redis://cac he", "%20"),
        ("redis://cache/x", "its number"),
        ("redis://a,b", "host:port"),
        ("redis://u:p/w@cache", "%40"),
        ("unix://run/valkey.sock", "unix:///run"),
        ("unix://", "unix:///run"),
        ("redis+sentinel://a:26379", "/service"),
        ("redis+sentinel://a/main/x", "its number"),
        ("redis+sentinel://a,,b/main", "host:port"),
    ],
)
def test_what_is_no_store_is_refused_with_what_to_write(url: str, named: str) -> None:
    with pytest.raises(BadStoreUrl) as caught:
        parse_store_url(url)
    assert named in caught.value.instead
    with pytest.raises(SettingsError, match=r"coordination\.url"):
        load_settings(None, {"coordination.url": url}, {})


@given(st.text("redis+sntl:/@,[]%?#0123 \\", max_size=40), st.sampled_from(["", "redis://"]))
def test_whatever_is_written_is_taken_or_refused(text: str, scheme: str) -> None:
    try:
        address = parse_store_url(scheme + text)
    except BadStoreUrl:
        return
    assert address.hosts or address.url.startswith("unix://")


@given(st.text("abc:/@?[]%", min_size=1, max_size=10))
def test_no_refusal_and_no_repr_holds_a_password(more: str) -> None:
    url = f"redis+sentinel://u:SECRET{more}@a/main"
    try:
        shown = repr(parse_store_url(url))
    except BadStoreUrl as error:
        shown = str(error)
    assert "SECRET" not in shown
