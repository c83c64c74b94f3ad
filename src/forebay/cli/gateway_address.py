"""What `--url` may be: read once, here, for every command."""

from __future__ import annotations


def address_problem(url: str) -> str:
    """Return what is wrong with the address of a gateway, in a sentence; nothing where it is well.

    >>> address_problem("http://[::1]:7800"), address_problem("https://gate.example/llm")
    ('', '')
    >>> address_problem("http://127.0.0.1:99999")
    'http://127.0.0.1:99999 is not the address of a gateway: a port is from 1 to 65535.'
    >>> address_problem("http://me:secret@gate")
    'the address has a user or a password in it. Take it out; a key is named with --key-env VAR.'
    """
    from forebay.settings.addresses import DEFAULT_PORTS, split_url  # not for a list of options

    split = split_url(url)
    if "@" in url.partition("://")[2].partition("/")[0]:  # and it is not shown
        return (
            "the address has a user or a password in it. "
            "Take it out; a key is named with --key-env VAR."
        )
    if split is None:
        return f"{_shown(url)} is not the address of a gateway{_about_the_port(url)}."
    if split[0].scheme not in DEFAULT_PORTS:
        return f"{url} is not the address of a gateway: it begins with http:// or https://."
    if "?" in url or "#" in url:
        return (  # and it is not shown: a key may be in it
            "the address has a query or a fragment in it. "
            "Leave it out: an address ends with the port or a path."
        )
    return ""


def _about_the_port(url: str) -> str:
    """Say so where all would be well but for the port."""
    from forebay.settings.addresses import split_url

    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, colon, _ = authority.rpartition(":")
    is_port = colon and mark and split_url(f"{scheme}://{host}{slash}{path}") is not None
    return ": a port is from 1 to 65535" if is_port else ""


def _shown(url: str) -> str:
    return url if url.isprintable() else ascii(url)
