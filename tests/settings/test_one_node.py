"""One node as an operator describes it while the gateway runs."""

import pytest

from forebay.settings import SettingsError, parse_node


@pytest.mark.parametrize("name", ["slot", "", "a.b", "[", "nodes[0].url"])
def test_a_name_that_a_node_does_not_have_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(SettingsError, match="did you mean ") as caught:
        parse_node({"url": "http://127.0.0.1:1", name: 1})
    (problem,) = caught.value.problems
    assert problem.key == name


def test_the_nearest_name_is_the_one_that_was_meant() -> None:
    with pytest.raises(SettingsError, match=r"did you mean slots\?"):
        parse_node({"url": "http://127.0.0.1:1", "slot": 1})


@pytest.mark.parametrize("auto", ["auto", 0])
def test_slots_that_nobody_sets_are_found(auto: object) -> None:
    assert parse_node({"url": "http://127.0.0.1:1"}).slots == "auto"
    assert parse_node({"url": "http://127.0.0.1:1", "slots": auto}).slots == "auto"
    assert parse_node({"url": "http://127.0.0.1:1", "slots": 10_000}).slots == 10_000


@pytest.mark.parametrize("slots", ["many", "4", -1, 10_001, 1.5, True, False, None, []])
def test_slots_are_a_number_or_auto(slots: object) -> None:
    with pytest.raises(SettingsError, match=r'is neither a number of requests nor "auto"'):
        parse_node({"url": "http://127.0.0.1:1", "slots": slots})
