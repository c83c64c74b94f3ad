"""Where the others reach a gateway, and what it is called."""

from __future__ import annotations

import pytest

from forebay.settings import Settings, SettingsError, advertised, load_settings, replica_name


def address(port: int = 0, hostname: str = "gate-1", **flags: object) -> str:
    dotted = {name.replace("__", "."): value for name, value in flags.items()}
    settings: Settings = load_settings(None, dotted, {})
    return advertised(settings.server, settings.coordination, port, hostname)


def test_what_is_written_counts() -> None:
    given = "https://gate.example:8443"
    assert address(coordination__advertise=given, server__host="0.0.0.0") == given


def test_else_it_is_made_of_where_the_gateway_listens() -> None:
    assert address() == "http://127.0.0.1:7800"
    assert address(server__host="::1", server__port=7801) == "http://[::1]:7801"
    assert address(4711, server__port=0) == "http://127.0.0.1:4711"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_wildcard_becomes_the_name_of_the_machine(host: str) -> None:
    assert address(server__host=host) == "http://gate-1:7800"
    assert address(server__host=host, hostname="Gate-1") == "http://gate-1:7800"


def test_with_a_certificate_it_is_https() -> None:
    assert (
        address(server__tls_cert="cert.pem", server__tls_key="key.pem") == "https://127.0.0.1:7800"
    )


def test_where_nobody_could_reach_it_the_setting_is_named() -> None:
    with pytest.raises(SettingsError, match=r"coordination\.advertise.*server\.port = 0"):
        address(server__port=0)
    with pytest.raises(SettingsError, match=r"coordination\.advertise.*name"):
        address(server__host="0.0.0.0", hostname="not a name!")


def test_a_name_stays_the_same_and_differs_from_others() -> None:
    names = {replica_name(f"http://10.0.0.1:{port}") for port in range(1000)}
    assert len(names) == 1000
    assert all(len(name) == 8 and int(name, 16) >= 0 for name in names)
    assert replica_name("http://10.0.0.1:7800") == "d504ab54"


@pytest.mark.parametrize("url", ["10.0.0.1:7800", "redis://a", "http://a/path", "http://u:p@a"])
def test_an_address_that_is_no_root_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"coordination\.advertise"):
        load_settings(None, {"coordination.advertise": url}, {})
