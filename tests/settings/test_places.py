"""Where the settings and the data are found when nobody says where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.settings import Settings, SettingsError, load_settings, load_with_origins, plan_reload
from forebay.settings.places import (
    DATABASE_HERE,
    default_database,
    make_data_folder,
    settings_file,
    state_folder,
    usual_files,
)


def written(folder: Path, port: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "forebay.toml"
    path.write_text(f"[server]\nport = {port}\n")
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("here")
def test_the_nearest_settings_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "etc" / "forebay.toml"
    monkeypatch.setattr("forebay.settings.places.SYSTEM_FILE", system)
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert settings_file(environ) is None
    assert settings_file({"XDG_CONFIG_HOME": "relative"}) is None
    written(system.parent, 1)
    assert settings_file(environ) == system
    own = written(tmp_path / "config" / "forebay", 2)
    assert settings_file(environ) == own
    written(Path(), 3)
    assert settings_file(environ) == Path("forebay.toml")
    named = written(tmp_path / "named", 4)
    environ["FOREBAY_CONFIG"] = str(named)
    loaded = load_with_origins(None, (), environ)
    assert (loaded.settings.server.port, loaded.path) == (4, named)
    assert load_settings(own, (), environ).server.port == 2  # what a flag names is nearer still


def test_without_xdg_variables_the_folders_are_those_of_the_home() -> None:
    assert usual_files({"HOME": "/home/ann"})[1] == Path("/home/ann/.config/forebay/forebay.toml")
    assert state_folder({"HOME": "/home/ann"}) == Path("/home/ann/.local/state/forebay")
    assert state_folder({}) == Path()


def test_a_file_that_forebay_config_names_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.toml: cannot be read"):
        load_settings(None, (), {"FOREBAY_CONFIG": str(tmp_path / "gone.toml")})


def test_variables_of_the_program_are_no_settings() -> None:
    environ = {"FOREBAY_URL": "http://gate:7800", "FOREBAY_API_KEY": "fb-x", "FOREBAY_CONFIG": ""}
    assert load_settings(None, (), environ).server.port == 7800
    with pytest.raises(SettingsError, match="did you mean FOREBAY_API_KEY"):
        load_settings(None, (), {"FOREBAY_APIKEY": "fb-x"})


def test_data_is_kept_in_the_state_folder_unless_a_database_is_here(here: Path) -> None:
    environ = {"HOME": "/home/ann", "XDG_STATE_HOME": "/data"}
    assert default_database(environ) == "sqlite:////data/forebay/forebay.db"
    environ["STATE_DIRECTORY"] = "/var/lib/forebay:/var/lib/other"
    assert default_database(environ) == "sqlite:////var/lib/forebay/forebay.db"
    assert default_database({}) == DATABASE_HERE
    (here / "forebay.db").touch()
    assert default_database(environ) == DATABASE_HERE


def test_only_the_default_folder_is_made(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    make_data_folder(f"sqlite:///{tmp_path}/mistyped/forebay.db", environ)
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        make_data_folder(default_database(environ), environ)
    folder = tmp_path / "state" / "forebay"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_database_that_appears_here_later_does_not_stop_a_reload(here: Path) -> None:
    old = Settings()
    (here / "forebay.db").touch()
    new = Settings()
    assert new.jobs.database == DATABASE_HERE != old.jobs.database
    assert plan_reload(old, new).refused == ()
    named = Settings(jobs={"database": DATABASE_HERE})  # type: ignore[arg-type] # pydantic reads dicts
    assert [problem.key for problem in plan_reload(old, named).refused] == ["jobs.database"]
