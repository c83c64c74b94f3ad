"""What may stand behind the `?` of a store's URL: options of redis-py, checked before it sees them.

One that it does not know would only fail with the first call, and look like a store that is out of
reach. Nothing that was written is said again: a password with a bare `?` in it ends up here, too.
"""

from collections.abc import Iterable

TIMES = ("health_check_interval", "socket_connect_timeout", "socket_timeout")
COUNTS = ("max_connections", "protocol", "socket_read_size")
WORDS = (
    "client_name", "db", "decode_responses", "password", "retry_on_timeout", "socket_keepalive",
    "username",
)  # fmt: skip
TLS = (
    "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile",
    "ssl_check_hostname", "ssl_ciphers", "ssl_keyfile", "ssl_min_version", "ssl_password",
)  # fmt: skip
SENTINEL = ("sentinel_password", "sentinel_username")
KNOWN = (*TIMES, *COUNTS, *WORDS)


def wrong_option(
    query: Iterable[tuple[str, str]], *, tls: bool, sentinel: bool
) -> tuple[str, str] | None:
    """Return what is wrong with the options and what to write instead, if anything."""
    known = {*KNOWN, *(TLS if tls else ()), *(SENTINEL if sentinel else ())}
    for name, value in query:
        if name in TLS and not tls:
            return "has an option of TLS without TLS", "begin it with rediss://, or leave that out"
        if name not in known:
            return (
                "has an option behind its ? that is not known",
                f"known are {', '.join(sorted(known))}; a ? of a password is written %3F",
            )
        if (name in TIMES and not _is_time(value)) or (name in COUNTS and not value.isdigit()):
            return f"has a {name} that is no number", "write seconds, or how many"
    return None


def _is_time(text: str) -> bool:
    whole, _, part = text.partition(".")
    return (whole + part).isdigit() and text.isascii() and len(text) <= 10
