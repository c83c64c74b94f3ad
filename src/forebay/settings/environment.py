"""The one place that reads the environment of the program."""

import os
from collections.abc import Mapping


def current_environment() -> Mapping[str, str]:
    """Return a copy of the environment as it is now."""
    return dict(os.environ)
