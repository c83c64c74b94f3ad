"""Addresses in the settings: hosts, origins, networks, the URLs of nodes and databases."""

import re
from ipaddress import ip_address, ip_network
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator

from forebay.settings.errors import refusal

LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){LABEL}(?:\.{LABEL})*\.?")
DIGITS_AND_DOTS = re.compile(r"[0-9.]+")


def is_host(host: str) -> bool:
    """Say whether a text in lower case is a host name or an address."""
    if ":" in host or DIGITS_AND_DOTS.fullmatch(host):
        try:
            ip_address(host)
        except ValueError:
            return False
        return True
    return HOST_NAME.fullmatch(host) is not None


DATABASE = re.compile(r"(sqlite|postgresql|postgres)(\+[a-z0-9]+)?://\S*")
DEFAULT_PORTS = {"http": 80, "https": 443}


def _host(host: str) -> str:
    if not is_host(host.lower()):
        raise refusal(
            "is not a host name or an address",
            'write only the host, with no scheme, port or brackets, such as "127.0.0.1" or "::1"',
        )
    return host.lower()


def split_url(url: str) -> tuple[SplitResult, str, int | None] | None:
    """Return the parts, the host and the port of a URL; None where there is no such URL."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if host is None or not is_host(host) or port == 0 or parts.netloc.endswith(":"):
        return None
    return parts, host, port


def _http_root(url: str) -> str:
    """Return the URL in its plain form, `scheme://host[:port]`; refuse anything more than that."""
    split = split_url(url)
    if split is None or split[0].scheme not in DEFAULT_PORTS:
        raise refusal(
            "is not a URL with http or https and a host",
            'write one such as "http://127.0.0.1:11434"',
        )
    parts, host, port = split
    if "@" in parts.netloc:
        raise refusal("has a user or a password in it", "remove them; name a variable instead")
    if parts.path not in ("", "/") or "?" in url or "#" in url:
        raise refusal(
            "has more than a host and a port",
            "leave out the path (such as /v1), the query and the fragment",
        )
    bracketed = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{bracketed}" + (f":{port}" if port is not None else "")


def _origin(origin: str) -> str:
    return origin if origin == "*" else _http_root(origin)


def _network(text: str) -> str:
    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        raise refusal(
            "is not an address or a network", 'write one such as "10.0.0.1" or "10.0.0.0/8"'
        ) from None


def _database(url: str) -> str:
    if url and DATABASE.fullmatch(url) is None:
        raise refusal(
            "is not the URL of a database Forebay can use",
            'write "sqlite:///forebay.db" or "postgresql://host/name"',
        )
    return url


def _webhook(url: str) -> str:
    split = split_url(url) if url else None
    if url and (split is None or split[0].scheme not in DEFAULT_PORTS):
        raise refusal(
            "is not a URL with http or https and a host",
            'write one such as "https://app.example/hooks/forebay", or "" for no webhook',
        )
    if split is not None and ("@" in split[0].netloc or split[0].fragment):
        raise refusal("has a password or a fragment in it", "remove it; use webhook_secret_env")
    return url


def _http_root_or_nothing(url: str) -> str:
    return _http_root(url) if url else url


def is_loopback_name(host: str) -> bool:
    """Say whether a host is this machine, seen from itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def name_of_url(url: str) -> str:
    """Return a plain name for the node at a URL that `HttpRoot` accepts, else nothing.

    >>> name_of_url("http://127.0.0.1:11434"), name_of_url("https://[::1]"), name_of_url("gpu1")
    ('127.0.0.1-11434', '--1-443', '')
    """
    split = split_url(url)
    if split is None:
        return ""
    parts, host, port = split
    number = port if port is not None else DEFAULT_PORTS.get(parts.scheme, 0)
    return f"{host.replace(':', '-')[:58]}-{number}"


def without_password(url: str) -> str:
    """Return the URL as it may be shown: a password in it, or in its query, is starred out.

    >>> without_password("postgresql://app:s3cret@db/jobs?sslpassword=x")
    'postgresql://app:***@db/jobs?***'
    """
    head, mark, rest = url.partition("://")
    if not mark:
        return url
    authority, slash, tail = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if at:
        authority = f"{user.partition(':')[0]}:***@{host}"
    path, question, _ = tail.partition("?")
    return f"{head}://{authority}{slash}{path}" + ("?***" if question else "")


Host = Annotated[str, AfterValidator(_host)]
HttpRoot = Annotated[str, AfterValidator(_http_root)]
HttpRootOrNothing = Annotated[str, AfterValidator(_http_root_or_nothing)]
WebOrigin = Annotated[str, AfterValidator(_origin)]
Network = Annotated[str, AfterValidator(_network)]
DatabaseUrl = Annotated[str, AfterValidator(_database)]
WebhookUrl = Annotated[str, AfterValidator(_webhook)]
