"""Default paths of the settings file and of the data.

As the XDG base directories and systemd have it. A relative folder in one of their variables is
ignored, as the XDG specification wants it.
"""

from collections.abc import Mapping
from pathlib import Path

from forebay.settings.environment import current_environment

CONFIG_VARIABLE, URL_VARIABLE, KEY_VARIABLE = "FOREBAY_CONFIG", "FOREBAY_URL", "FOREBAY_API_KEY"
PROGRAM_VARIABLES = (CONFIG_VARIABLE, URL_VARIABLE, KEY_VARIABLE)
"""Read by the program itself; they are no settings."""
FILE_NAME = "forebay.toml"
SYSTEM_FILE = Path("/etc/forebay") / FILE_NAME
DATABASE_NAME = "forebay.db"
DATABASE_HERE = f"sqlite:///{DATABASE_NAME}"
"""In the working directory, where it was kept before it had a place of its own."""


def settings_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the settings file to read where none was named; None where there is none.

    What FOREBAY_CONFIG names counts even where it is missing, so that a typing error is found.
    """
    environ = current_environment() if environ is None else environ
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    return next((path for path in usual_files(environ) if path.is_file()), None)


def usual_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files that are looked for, the first one found counts."""
    own = _base(environ, "XDG_CONFIG_HOME", ".config")
    return (Path(FILE_NAME), *([own / "forebay" / FILE_NAME] if own else []), SYSTEM_FILE)


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return where data is kept by default; the working directory where nobody has a home."""
    environ = current_environment() if environ is None else environ
    given = Path(environ.get("STATE_DIRECTORY", "").partition(":")[0])  # systemd may name several
    if given.is_absolute():
        return given
    base = _base(environ, "XDG_STATE_HOME", ".local/state")
    return base / "forebay" if base is not None else Path()


def default_database(environ: Mapping[str, str] | None = None) -> str:
    """Return the URL of the database that jobs are kept in where the settings name none."""
    folder = state_folder(environ)
    if folder == Path() or Path(DATABASE_NAME).is_file():
        return DATABASE_HERE
    return f"sqlite:///{folder / DATABASE_NAME}"


def make_data_folder(database: str, environ: Mapping[str, str] | None = None) -> None:
    """Make the default folder where this database is to be in it; raises OSError.

    A folder that somebody named is theirs to make: a new one may hide a typing error.
    """
    folder = state_folder(environ)
    if database == f"sqlite:///{folder / DATABASE_NAME}":
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _base(environ: Mapping[str, str], variable: str, under_home: str) -> Path | None:
    given = Path(environ.get(variable, ""))
    if given.is_absolute():
        return given
    home = Path(environ.get("HOME", ""))
    return home / under_home if home.is_absolute() else None
