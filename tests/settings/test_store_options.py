"""Options in the URL of a store: those that redis-py has, and no others."""

from __future__ import annotations

import inspect

import pytest
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection

from forebay.settings.store_options import COUNTS, KNOWN, SENTINEL, TIMES, TLS
from forebay.settings.store_url import BadStoreUrl, parse_store_url


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
        *((f"redis://cache?{name}=secret", f"a {name} that is no number") for name in TIMES),
        *((f"redis://cache?{name}=1.5", f"a {name} that is no number") for name in COUNTS),
        *((f"redis://cache?{name}=secret", "is not known") for name in SENTINEL),
        ("redis://:pa?ssecret@cache", "is not known"),
        ("unix:///run/v.sock?socket_timeout=", "a socket_timeout that is no number"),
    ],
)
def test_what_redis_py_would_choke_on_is_refused_without_a_word_of_it(url: str, wrong: str) -> None:
    with pytest.raises(BadStoreUrl) as refused:
        parse_store_url(url)
    assert wrong in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "nosuch" not in str(refused.value)
