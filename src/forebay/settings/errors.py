"""What is wrong with the settings: a list of problems, told together and in words."""

from collections.abc import Iterable
from typing import NamedTuple

from pydantic_core import PydanticCustomError

from forebay.errors import NotAllowed

REFUSED = "refused"
"""The type of our own pydantic errors; their context holds the problems themselves."""


class SettingsProblem(NamedTuple):
    """One thing that is wrong, and the way out."""

    key: str
    """The dotted name of the setting, such as `queue.max_size` or `nodes[0].url`."""
    wrong: str
    """What is wrong with it; never the value of something secret."""
    instead: str
    """What to write, or do, instead."""
    where: str = ""
    """The source that said so: a file, a variable, a flag; empty when it was none of them."""

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        return f"{self.key}{where}: {self.wrong}; {self.instead}"


class SettingsError(NotAllowed):
    """The settings cannot be used as they are; the text lists every problem found."""

    code = "bad_settings"

    def __init__(self, problems: Iterable[SettingsProblem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        lines = [f"the settings have {head}:", *(f"  {problem}" for problem in self.problems)]
        super().__init__("\n".join(lines))


def refusal(wrong: str, instead: str) -> PydanticCustomError:
    """Return the error for a validator to raise about the one value it looks at."""
    return refusals([SettingsProblem("", wrong, instead)])


def refusals(problems: Iterable[SettingsProblem]) -> PydanticCustomError:
    """Return the error for a validator that looks at several keys; keys are relative to it."""
    listed = tuple(problems)
    text = " | ".join(f"{problem.wrong}; {problem.instead}" for problem in listed)
    return PydanticCustomError(REFUSED, "{text}", {"text": text, "problems": listed})
