"""The URL of a Valkey or Redis server, or of the sentinels that watch one.

| written | means |
|---|---|
| `redis://[user:password@]host[:port][/db]` | one server; `valkey://` is the same |
| `rediss://...` | one server, over TLS; `valkeys://` is the same |
| `unix://[user:password@]/path/to.sock[?db=n]` | one server on this machine, by its socket |
| `redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/db]` | its sentinels |

`rediss+sentinel://` speaks TLS. The user and the password are the server's; sentinels that want
some of their own are given `?sentinel_username=` and `?sentinel_password=`. What else stands in the
query is an option of redis-py, such as `ssl_ca_certs`, which refuses at the start what it does not
know. Messages never repeat what was written: a password with a bare `?` in it ends up in the query.
"""

import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from msgspec import Struct

from forebay.settings.addresses import is_host

SCHEMES: Final = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss"}
SENTINEL_PORT: Final = 26379
FORMS: Final = (
    'write one such as "redis://127.0.0.1:6379/0" or "redis+sentinel://host:26379/service", or "" '
    "for a gateway of its own"
)


class BadStoreUrl(ValueError):
    """A URL that names no store; says what is wrong and what to write, never what was written."""

    def __init__(self, wrong: str, instead: str = FORMS) -> None:
        super().__init__(f"{wrong}; {instead}")
        self.wrong = wrong
        self.instead = instead


class StoreAddress(Struct, frozen=True, kw_only=True):
    """Where a store is."""

    url: str
    """Of the server, as redis-py takes it; behind sentinels, with the first of them as its host."""
    hosts: tuple[tuple[str, int], ...]
    """The server, or the sentinels; none if it is reached through a socket of this machine."""
    service: str = ""
    """What the sentinels call the server; "" without sentinels."""
    sentinel_username: str = ""
    sentinel_password: str = ""

    def __repr__(self) -> str:
        """Show where it is, and nothing secret."""
        return f"StoreAddress({','.join(f'{host}:{port}' for host, port in self.hosts)})"


def parse_store_url(url: str) -> StoreAddress:
    """Return where a store is; raises BadStoreUrl.

    >>> parse_store_url("redis+sentinel://:s3cret@a,b:5000/main/2")
    StoreAddress(a:26379,b:5000)
    >>> parse_store_url("valkeys://cache").url
    'rediss://cache'
    """
    scheme, mark, rest = url.partition("://")
    plain, plus, kind = scheme.partition("+")
    known = scheme == "unix" or (plain in SCHEMES and (kind == "sentinel" if plus else True))
    if not mark or not known:
        raise BadStoreUrl("is not the URL of a Valkey or Redis server")
    if not url.isascii() or not url.isprintable() or set(" \\#") & set(url):
        raise BadStoreUrl(
            "has blanks or characters in it that a URL cannot have",
            "write those of a password as %XX, such as %20 for a blank and %23 for #",
        )
    if scheme == "unix":
        if not re.match(r"([^/?]*@)?/[^?]", rest):
            raise BadStoreUrl(
                "does not name the path of a socket", 'write "unix:///run/valkey/valkey.sock"'
            )
        return StoreAddress(url=url, hosts=())
    if plus:
        return _behind_sentinels(SCHEMES[plain], rest)
    url = f"{SCHEMES[plain]}://{rest}"
    return StoreAddress(url=url, hosts=(_server(url),))


def _server(url: str, default_port: int = 6379) -> tuple[str, int]:
    """Return host and port of a URL with one host, with at most a database behind it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", 0
    if not is_host(host) or port == 0 or parts.netloc.endswith(":"):
        raise BadStoreUrl(
            "names an invalid host or port",
            'write one "host:port", an IPv6 one in brackets; @, :, / and [ of a password as %40, '
            "%3A, %2F and %5B",
        )
    if not re.fullmatch(r"/?[0-9]{0,6}", parts.path):
        raise BadStoreUrl("names a database that is not a number", "write its number, such as 0")
    return host, default_port if port is None else port


def _behind_sentinels(scheme: str, rest: str) -> StoreAddress:
    place, _, options = rest.partition("?")
    authority, _, path = place.partition("/")
    credentials, at, hosts_text = authority.rpartition("@")
    service, _, db = path.partition("/")
    if not service:
        raise BadStoreUrl(
            "does not name the service that the sentinels watch",
            'write it behind the hosts, as in "redis+sentinel://host:26379/service"',
        )
    urls = [f"{scheme}://{credentials}{at}{host}/{db}" for host in hosts_text.split(",")]
    query = dict(parse_qsl(options, keep_blank_values=True))
    own = {name: query.pop(name, "") for name in ("sentinel_username", "sentinel_password")}
    return StoreAddress(
        url=f"{urls[0]}?{urlencode(query)}" if query else urls[0],
        hosts=tuple(_server(url, SENTINEL_PORT) for url in urls),
        service=unquote(service),
        **own,
    )
