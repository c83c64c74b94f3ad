"""How a server that cannot start, or go on, ends its command: with words and an exit status."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from forebay.cli.exits import FAILED, USAGE
from forebay.cli.output.console import fail
from forebay.cli.serve.start_failures import explain_start_error
from forebay.errors import BackendFailed, InvariantBroken, NotAllowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.settings import Settings


@contextmanager
def ending_with_words(settings: Settings) -> Iterator[None]:
    """End the command where a gateway with these settings fails."""
    try:
        yield
    except NotAllowed as error:  # the settings, or an app's own modules
        fail(str(error), code=USAGE)
    except (BackendFailed, InvariantBroken) as error:
        fail(str(error))
    except OSError as error:
        why = explain_start_error(error, settings.server)
        fail(why.words, code=USAGE if why.is_in_the_settings else FAILED)
