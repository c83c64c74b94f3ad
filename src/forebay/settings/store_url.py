"""The URL of a Valkey or Redis server, of its sentinels, or of a cluster, taken apart.

| written | means |
|---|---|
| `redis://[user:password@]host[:port][/db]` | one server; `valkey://` is the same |
| `rediss://...` | one server, over TLS; `valkeys://` is the same |
| `unix://[user:password@]/path/to.sock[?db=n]` | one server on this machine, by its socket |
| `redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/db]` | its sentinels |
| `redis+cluster://[user:password@]host[:port][,host[:port]...]` | some members of a cluster |

`rediss+sentinel://` and `rediss+cluster://` speak TLS. The user and the password are the servers';
sentinels that want some of their own are given `?sentinel_username=` and `?sentinel_password=`.
What else stands in the query is an option of redis-py, such as `ssl_ca_certs`, and stays in `url`.
Options are checked here: redis-py would fail only with the first call on one that it does not know,
which looks like a store that is out of reach. Messages never repeat what was written, because a
password with a bare `?` in it ends up in the query.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from msgspec import Struct

from forebay.settings.addresses import is_host

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
            return f"has a {name} that is not a number", "write seconds, or how many"
    return None


def _is_time(text: str) -> bool:
    whole, _, part = text.partition(".")
    return (whole + part).isdigit() and text.isascii() and len(text) <= 10


Kind: TypeAlias = Literal["single", "sentinel", "cluster"]

SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("single", False),
    "valkey": ("single", False),
    "rediss": ("single", True),
    "valkeys": ("single", True),
    "unix": ("single", False),
    **{
        f"{name}+{kind}": (kind, tls)
        for kind in ("sentinel", "cluster")
        for name, tls in (("redis", False), ("valkey", False), ("rediss", True), ("valkeys", True))
    },
}
PORTS: dict[Kind, int] = {"single": 6379, "sentinel": 26379, "cluster": 6379}
HOSTS_MAX = 64
DB_MAX = 1_000_000
FORMS = (
    'write one such as "redis://127.0.0.1:6379/0", "redis+sentinel://host:26379/service" or '
    '"redis+cluster://host:6379", or "" for a gateway of its own'
)


class BadStoreUrl(ValueError):
    """A URL that names no store; says what is wrong and what to write, never what was written."""

    def __init__(self, wrong: str, instead: str = FORMS) -> None:
        super().__init__(f"{wrong}; {instead}")
        self.wrong = wrong
        self.instead = instead


class StoreAddress(Struct, frozen=True, kw_only=True):
    """Where a store is, and as whom to ask it."""

    kind: Kind
    hosts: tuple[tuple[str, int], ...] = ()
    """The server, the sentinels, or some of the cluster; none where it is a socket's path."""
    tls: bool = False
    username: str = ""
    password: str = ""
    db: int = 0
    service: str = ""
    """What the sentinels call the server."""
    unix_path: str = ""
    sentinel_username: str = ""
    sentinel_password: str = ""
    url: str = ""
    """What redis-py's `from_url` and `parse_url` take: of several hosts the first one."""

    def __repr__(self) -> str:
        """Show where it is, and nothing secret."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"StoreAddress({self.kind} {self.unix_path or hosts})"


def parse_store_url(url: str) -> StoreAddress:
    """Return what a URL says; raises BadStoreUrl.

    >>> parse_store_url("redis+sentinel://:s3cret@a,b:5000/main/2")
    StoreAddress(sentinel a:26379,b:5000)
    >>> parse_store_url("rediss://cache").hosts
    (('cache', 6379),)
    """
    scheme, mark, _ = url.partition("://")
    if not mark or scheme not in SCHEMES:
        raise BadStoreUrl("is not the URL of a Valkey or Redis server")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url or "#" in url:
        raise BadStoreUrl(
            "has blanks or characters in it that a URL cannot have",
            "write those of a password as %XX, such as %20 for a blank and %23 for #",
        )
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadStoreUrl("is not the URL of a Valkey or Redis server") from None
    username, password, hosts_text = _authority(parts)
    own = {"sentinel_username": "", "sentinel_password": ""}
    kind, tls = SCHEMES[scheme]
    query = parse_qsl(parts.query, keep_blank_values=True)
    wrong = wrong_option(query, tls=tls, sentinel=kind == "sentinel")
    if wrong is not None:
        raise BadStoreUrl(*wrong)
    if kind == "sentinel":
        own.update({name: value for name, value in query if name in own})
    left_out = ("db", *own)  # a database is said in the path
    options = urlencode([pair for pair in query if pair[0] not in left_out])
    given = {"kind": kind, "tls": tls, "username": username, "password": password, **own}
    if scheme == "unix":
        place = _at_socket(parts, hosts_text)
    else:
        place = _at_hosts(parts, kind, hosts_text)
    plain = _plain(parts, kind, tls, place)
    joint = ("&" if "?" in plain else "?") if options else ""
    return StoreAddress(**given, **place, url=f"{plain}{joint}{options}")  # type: ignore[arg-type]


def _authority(parts: SplitResult) -> tuple[str, str, str]:
    """Return the user, the password and the hosts."""
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    if "@" in credentials or "[" in credentials:
        raise BadStoreUrl(
            "has a user or a password that cannot be told from the host",
            "write @, :, / and [ of a password as %40, %3A, %2F and %5B",
        )
    return unquote(username), unquote(password), hosts


def _at_socket(parts: SplitResult, hosts: str) -> dict[str, object]:
    if hosts or len(parts.path) < 2:
        raise BadStoreUrl(
            "does not name the path of a socket", 'write "unix:///run/valkey/valkey.sock"'
        )
    return {"unix_path": unquote(parts.path), "db": _db(_in_query(parts))}


def _at_hosts(parts: SplitResult, kind: Kind, text: str) -> dict[str, object]:
    hosts = tuple(_host(one, PORTS[kind]) for one in text.split(","))
    if len(hosts) > (1 if kind == "single" else HOSTS_MAX):
        raise BadStoreUrl(
            "names several hosts" if kind == "single" else "names too many hosts",
            'several are written "redis+sentinel://host,host/service" or '
            f'"redis+cluster://host,host", {HOSTS_MAX} at most',
        )
    if len(set(hosts)) < len(hosts):
        raise BadStoreUrl("names a host twice", "write each of them once")
    names = [unquote(name) for name in parts.path.removeprefix("/").split("/")]
    if kind == "cluster":
        if parts.path not in ("", "/"):
            raise BadStoreUrl(
                "has a database in it, of which a cluster has only one", "leave out the path"
            )
        return {"hosts": hosts}
    if kind == "sentinel":
        if not names[0] or len(names) > 2:
            raise BadStoreUrl(
                "does not name the service that the sentinels watch",
                'write it behind the hosts, as in "redis+sentinel://host:26379/service"',
            )
        return {"hosts": hosts, "service": names[0], "db": _db(names[1] if names[1:] else "")}
    if len(names) > 1:
        raise BadStoreUrl("has more than the number of a database behind its host", FORMS)
    return {"hosts": hosts, "db": _db(names[0] or _in_query(parts))}


def _in_query(parts: SplitResult) -> str:
    return dict(parse_qsl(parts.query)).get("db", "")


def _host(text: str, default: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if rest else ""
        is_whole = rest == "" or rest.startswith(":")
    else:
        host, mark, port = text.partition(":")
        is_whole = not mark or bool(port)
    if not is_whole or not is_host(host.lower()) or not _is_port(port):
        raise BadStoreUrl(
            "names an invalid host or port", 'write "host:port", an IPv6 one in brackets'
        )
    return host.lower(), int(port) if port else default


def _is_port(port: str) -> bool:
    return port == "" or (port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535)


def _db(text: str) -> int:
    if text and not (text.isdigit() and int(text) <= DB_MAX):
        raise BadStoreUrl("names a database that is not a number", "write its number, such as 0")
    return int(text) if text else 0


def _plain(parts: SplitResult, kind: Kind, tls: bool, place: dict[str, object]) -> str:
    """Return the URL of the one server, or of the first host, without its query."""
    credentials, at, _ = parts.netloc.rpartition("@")
    if "unix_path" in place:
        return f"unix://{credentials}{at}{parts.path}?db={place['db']}"
    host, port = place["hosts"][0]  # type: ignore[index]
    bracketed = f"[{host}]" if ":" in host else host
    path = "" if kind == "cluster" else f"/{place['db']}"
    return f"{'rediss' if tls else 'redis'}://{credentials}{at}{bracketed}:{port}{path}"
