"""What the pages say must be what the code does."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import shlex
import shutil
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import typer.main

from forebay.cli.main import app
from forebay.cli.verbs import DefaultVerbGroup
from forebay.gateway.errors.codes import CODES
from forebay.gateway.gateway import Gateway
from forebay.gateway.hot.access_record import AccessRecord
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import NodeSettings, Settings, load_settings
from forebay.settings.names import blocks, sections, valid_keys, variable_of
from forebay.settings.places import PROGRAM_VARIABLES
from tools.reference.metrics import described

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
DEPLOYED = sorted(path for path in ROOT.glob("deploy/**/*") if path.is_file())

FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
COMMAND = re.compile(r"(?:^|(?<=[\s/=;&|(]))forebay ((?:[a-z][a-z-]*|--version)\b[^\n;&|]*)")
METRIC = re.compile(r"\b(?:forebay|nexus)_[a-z_]+[a-z]")
VARIABLE = re.compile(r"\bFOREBAY_[A-Z][A-Z_]*(?![A-Z_]*\*)")
CODE_AFTER_STATUS = re.compile(r"\b[45][0-9]{2} `([a-z_]+)`")
CODE_IN_LINK = re.compile(r"errors\.md#([a-z_]+)\)")
SNAKE = re.compile(r"[a-z]+(?:_[a-z]+)+")


def of_pages(paths: list[Path]) -> pytest.MarkDecorator:
    """Make one test of each page, so that a failure names it."""
    return pytest.mark.parametrize("page", paths, ids=lambda path: str(path.relative_to(ROOT)))


def blocks_of(page: Path, language: str) -> list[str]:
    return [block for name, block in FENCED.findall(page.read_text()) if name == language]


@cache
def unfenced(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return FENCED.sub("", page.read_text())


def inline_of(page: Path) -> list[str]:
    return INLINE.findall(unfenced(page))


# -- pictures and links


@cache
def anchors(page: Path) -> set[str]:
    """Return what a page's headings are called in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", unfenced(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@of_pages(PAGES)
def test_every_relative_link_and_picture_leads_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(unfenced(page)):
        target = page.parent / path if path else page
        assert target.exists(), f"links to {path}"
        assert target.resolve().is_relative_to(ROOT), f"links out of the repository: {path}"
        if anchor:
            assert anchor in anchors(target.resolve()), f"links to #{anchor} of {target.name}"


def test_every_page_can_be_found_from_the_readme() -> None:
    found, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop().resolve()
        if page in found:
            continue
        found.add(page)
        for path, _ in LINK.findall(page.read_text()):
            target = page.parent / path
            left += sorted(target.glob("*.md")) if target.is_dir() else []
            left += [target] if target.suffix == ".md" else []
    assert set(ROOT.glob("docs/**/*.md")) - found == set()


def test_the_table_of_packages_names_places_that_are_there() -> None:
    rows = re.findall(
        r"^\| (`.+) \| (.+) \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.M
    )
    assert len(rows) > 15
    for packages, about, start in rows:
        names = INLINE.findall(packages)
        inside = [*INLINE.findall(start), *(n for n in INLINE.findall(about) if n.endswith("/"))]
        for place in (*names, *(f"{names[0]}/{name}" for name in inside)):
            assert (ROOT / "src" / "forebay" / place).exists(), place


# -- commands


@of_pages(PAGES)
def test_every_make_target_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    shown = [*inline_of(page), *"\n".join(blocks_of(page, "sh")).splitlines()]
    for target in {name for text in shown for name in re.findall(r"^make ([a-z]+)", text)}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


def commands(page: Path) -> Iterator[tuple[str, bool]]:
    """Yield each `forebay` command shown, and whether it is shown whole, to be pasted."""
    for text in inline_of(page) if page.suffix == ".md" else ():
        yield from ((found, False) for found in COMMAND.findall(text))
    texts = blocks_of(page, "sh") if page.suffix == ".md" else [page.read_text()]
    for line in "\n".join(texts).replace("\\\n", " ").splitlines():
        if not line.lstrip().startswith("#"):
            yield from ((found, True) for found in COMMAND.findall(line))


@cache
def program() -> Any:
    return typer.main.get_command(app)


def parse(words: list[str], *, whole: bool) -> None:
    """Parse a command line as the program would; nothing is run."""
    command: Any = program()
    name = "forebay"
    while words and words[0] in getattr(command, "commands", {}):
        name = words.pop(0)
        command = command.commands[name]
    if isinstance(command, DefaultVerbGroup) and (command.takes_file or not whole):
        command = command.commands[command.default] if words else command
    is_group = hasattr(command, "commands")
    assert not (is_group and words and not words[0].startswith("-")), f"no verb {words[0]}"
    if is_group:
        assert not whole or words, f"{name} needs a verb"
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known
        return
    try:
        command.make_context(name, words)
    except Exception as error:
        if whole or type(error).__name__ != "MissingParameter":
            raise AssertionError(f"{name}: {type(error).__name__} {error}") from None


@of_pages([*PAGES, *DEPLOYED])
def test_every_forebay_command_exists_and_takes_what_it_is_given(page: Path) -> None:
    for text, whole in commands(page):
        parse(shlex.split(text, comments=True), whole=whole)


@pytest.mark.parametrize(
    "wrong", ["forebay dance", "forebay serve --colour red", "forebay nodes paint", "forebay nodes"]
)
def test_a_command_that_does_not_exist_is_noticed(tmp_path: Path, wrong: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n.venv/bin/{wrong}\n```\n")
    ((text, whole),) = commands(page)
    with pytest.raises(AssertionError):
        parse(shlex.split(text, comments=True), whole=whole)


# -- settings


@of_pages(PAGES)
def test_every_toml_block_can_be_loaded(page: Path, tmp_path: Path) -> None:
    for block in blocks_of(page, "toml"):
        path = tmp_path / "forebay.toml"
        path.write_text(block)
        load_settings(path, environ={})


@cache
def variables() -> set[str]:
    return {variable_of(key) for key in [*valid_keys(), *blocks()]} | set(PROGRAM_VARIABLES)


@cache
def dotted_settings() -> tuple[set[str], re.Pattern[str]]:
    """Return those there are, and what looks like one."""
    known = set(valid_keys()) | {
        f"{name}.{field}" for name, block in blocks().items() for field in block.model_fields
    }
    names = "|".join([*sections(), *blocks()])
    return known, re.compile(rf"(?<![\w.])(?:{names})\.[a-z][a-z_]+(?![\w(]|\.[a-z])")


@of_pages([*PAGES, *DEPLOYED])
def test_every_variable_and_dotted_setting_exists(page: Path) -> None:
    assert set(VARIABLE.findall(page.read_text())) <= variables()
    known, dotted = dotted_settings()
    for shown in inline_of(page) if page.suffix == ".md" else ():
        if not shown.endswith((".py", ".md", ".rs", ".yaml", ".Queue")):
            assert set(dotted.findall(shown)) <= known, shown


# -- metrics, errors, log


METRICS = {metric.name for metric in described()}


def metrics_on(page: Path) -> set[str]:
    found = METRIC.findall(page.read_text())
    return {re.sub(r"_(?:bucket|sum|count)$", "", name) for name in found}


@of_pages(PAGES)
def test_every_metric_on_a_page_exists(page: Path) -> None:
    assert metrics_on(page) <= METRICS


def test_every_field_of_the_access_log_is_explained() -> None:
    section = (ROOT / "docs" / "operations.md").read_text().partition("## Logs")[2]
    table = section.partition("\n\n**The gateway's own log**")[0]
    shown = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in INLINE.findall(row)
    }
    assert shown == {field.name for field in msgspec.structs.fields(AccessRecord)}


@of_pages(PAGES)
def test_every_error_code_exists(page: Path) -> None:
    """A code is shown after its status (429 `queue_full`), or linked; other mentions are close."""
    text = page.read_text()
    shown = {*CODE_AFTER_STATUS.findall(text), *CODE_IN_LINK.findall(text)}
    assert shown <= set(CODES)
    others = {key.rpartition(".")[2] for key in valid_keys()}
    others |= {field.name for field in msgspec.structs.fields(AccessRecord)}
    for word in inline_of(page):
        if SNAKE.fullmatch(word) and word not in CODES and word not in others:
            assert get_close_matches(word, CODES, 1, 0.9) == [], word


# -- examples


def python_blocks(page: str) -> list[str]:
    return blocks_of(ROOT / page, "python")


def test_the_example_of_the_scheduler_does_what_it_says() -> None:
    """Each line that ends in `# Word: ...` must return an action of that name."""
    claims = 0
    for block in python_blocks("docs/internals/scheduler.md"):
        names: dict[str, object] = {}
        for line in block.splitlines():
            claim = re.search(r"^(.*)  # (\w+): ", line)
            if claim is None:
                exec(line, names)
            else:
                actions = eval(claim[1], names)
                assert [type(action).__name__ for action in actions] == [claim[2]], line
                claims += 1
    assert claims >= 4


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """A gateway as the quickstart starts one, but with a simulated model of the same name."""
    options = SimOptions(models=("smollm2-135m-instruct",), ttft_s=0.0, tokens_per_second=0.0)
    node = SimNode(options, "127.0.0.1", 0)
    await node.start()
    nodes = (NodeSettings(name="embedded", url=node.url),)
    try:
        async with Gateway(Settings(server={"port": 0}, nodes=nodes), environ={}) as started:  # type: ignore[arg-type]
            yield started
    finally:
        await node.stop()


@pytest.mark.parametrize(
    ("page", "library"), [("README.md", "openai"), ("docs/quickstart.md", "forebay.sdk")]
)
async def test_the_first_client_example_gets_an_answer(
    gateway: Gateway, page: str, library: str
) -> None:
    block = next(block for block in python_blocks(page) if f"from {library}" in block)
    here = block.replace("127.0.0.1:7800", f"127.0.0.1:{gateway.port}")
    said = io.StringIO()
    names: dict[str, Any] = {"print": lambda text: said.write(text)}
    await asyncio.to_thread(exec, here, names)
    with contextlib.suppress(KeyError):
        names["client"].close()
    assert len(said.getvalue().split()) > 3


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
async def test_the_first_curl_line_gets_an_answer(page: str, gateway: Gateway) -> None:
    shown = "\n".join(blocks_of(ROOT / page, "sh")).replace("\\\n", " ")
    line = next(line for line in shown.splitlines() if "chat/completions" in line)
    words = shlex.split(line.replace("127.0.0.1:7800", f"127.0.0.1:{gateway.port}"))
    curl = await asyncio.create_subprocess_exec(
        *words, "--silent", "--noproxy", "*", stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await curl.communicate()
    assert msgspec.json.decode(answer)["choices"][0]["message"]["content"]


def test_a_decision_is_at_most_forty_lines_long() -> None:
    pages = (ROOT / "docs" / "decisions").glob("[0-9]*.md")
    assert [page.name for page in pages if page.read_text().count("\n") > 40] == []
