"""Refuse a wrong argument at once, with a message that names it."""

import math


def at_least(minimum: int, name: str, value: int) -> int:
    """Return `value` if it is a whole number of `minimum` or more.

    Raises `TypeError` for anything that is not an `int` (a `bool` is not), else `ValueError`.

    >>> at_least(1, "capacity", 0)
    Traceback (most recent call last):
    ValueError: capacity must be at least 1, not 0
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {value}")
    return value


def seconds(name: str, value: float) -> float:
    """Return `value` if it is a number; infinity is one. Else raise, as `at_least` does.

    >>> seconds("timeout", float("nan"))
    Traceback (most recent call last):
    ValueError: timeout must be a number of seconds, not nan
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if math.isnan(value):
        raise ValueError(f"{name} must be a number of seconds, not {value}")
    return value
