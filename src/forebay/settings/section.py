"""What the sections of the settings share: strict kinds of numbers, names and lists."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from forebay.settings.errors import refusal

PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TEXT_MAX = 256


class Section(BaseModel):
    """One table of the settings: frozen, and closed to names that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _plain_name(name: str) -> str:
    if PLAIN_NAME.fullmatch(name) is None:
        raise refusal(
            "is not a plain name",
            "write 1 to 64 of the letters A-Z and a-z, digits, dots, dashes and underscores",
        )
    return name


def _variable(name: str) -> str:
    if name and VARIABLE.fullmatch(name) is None:
        raise refusal(
            "is not the name of an environment variable",
            'write the name of the variable that holds the secret, such as "TEAM_A_KEY", '
            "not the secret itself",
        )
    return name


def _printable(text: str) -> str:
    if not text or len(text) > TEXT_MAX or not text.isprintable() or text != text.strip():
        raise refusal(
            "is empty, too long, or has blanks around it or unprintable characters",
            f"write 1 to {TEXT_MAX} printable characters",
        )
    return text


def _printable_or_nothing(text: str) -> str:
    return _printable(text) if text else text


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise refusal(f"names {', '.join(twice)} more than once", "write each of them once")
    return names


Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=0)]
CountFromOne = Annotated[int, Field(strict=True, ge=1)]
Status = Annotated[int, Field(strict=True, ge=400, le=599)]
Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
AmountAboveZero = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
AmountOrForever = Annotated[float, Field(strict=True, ge=0)]  # NaN is not >= 0
PlainName = Annotated[str, AfterValidator(_plain_name)]
Variable = Annotated[str, AfterValidator(_variable)]
Text = Annotated[str, AfterValidator(_printable)]
TextOrNothing = Annotated[str, AfterValidator(_printable_or_nothing)]
Names = Annotated[tuple[Text, ...], AfterValidator(_different)]
