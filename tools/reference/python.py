"""The reference pages of the public Python API, made from signatures and docstrings.

The sources are read as syntax trees, not imported: signatures and types come out as they are
written, docstrings below fields are found, and every Python makes the same pages.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOURCES: Final = Path(__file__).parents[2] / "src"
FOLDER: Final = Path("docs/reference/python")
PACKAGES: Final = {
    "sdk": "How it is used: [the Python SDK](../../sdk.md).",
    "batching": "How it is used: [continuous batching](../../batching.md).",
    "jobs": "How it is used: [jobs](../../jobs.md), "
    "[background work](../../tutorials/background-work.md).",
    "core": "How it works: [the scheduler](../../internals/scheduler.md).",
    "testing": "What else the tests play: [simulation](../../simulation.md).",
}
"""The packages that users import, and where each is explained."""
WIDTH: Final = 100
SHOWN_ANYWAY: Final = {"__len__", "__contains__", "__iter__", "__aiter__"}

Row: TypeAlias = tuple[str, str, str, str]
"""Name, type, default, docstring."""
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """Where a name is defined: the module, and its statement there."""

    module: str
    node: ast.stmt


class Method(NamedTuple):
    """A method, and the module in which it is written."""

    module: str
    node: Function


def pages() -> dict[Path, str]:
    """Return the text of each page by its path from the root of the repository."""
    return {FOLDER / f"{name}.md": page(name) for name in PACKAGES}


def page(package: str) -> str:
    """Return what the page of one package should hold."""
    name = f"forebay.{package}"
    classes: list[str] = []
    rest: list[str] = []
    rows = [f"# {name}", "", f"<!-- Made from src/forebay/{package} by `make reference`. -->", ""]
    rows += [_markdown(ast.get_docstring(_tree(name)) or ""), "", PACKAGES[package], ""]
    rows += ["| Name | |", "| --- | --- |"]
    for public in _public(name):
        found = _find(name, public)
        summary = _markdown(_docstring(found)).split("\n\n")[0].replace("\n", " ")
        rows.append(f"| [`{public}`](#{public.lower()}) | {_cell(summary)} |")
        target = classes if isinstance(found.node, ast.ClassDef) else rest
        target += ["", f"## {public}", "", *_section(public, found)]
    return "\n".join([*rows, *classes, *rest]) + "\n"


# -- where names are defined


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text())


def _file(module: str) -> Path:
    path = SOURCES.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _public(module: str) -> list[str]:
    """Return the names in a package's `__all__`, sorted without regard to case."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    raise LookupError(f"{module} has no __all__")


def _find(module: str, name: str) -> Definition:
    """Return where a name is defined that a module has, directly or by an import."""
    for node in _statements(_tree(module).body):
        if isinstance(node, ast.ImportFrom) and node.module:
            for imported in node.names:
                if (imported.asname or imported.name) == name:
                    return _find(node.module, imported.name)
        elif name in _names(node):
            return Definition(module, node)
    raise LookupError(f"{module} has no {name}")


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, and those of `if` blocks: names may be imported for type checkers only."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements(node.body)
        else:
            yield node


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
        case _:
            return []


def _docstring(found: Definition) -> str:
    if isinstance(found.node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.get_docstring(found.node) or ""
    body = _tree(found.module).body
    return _docstring_below(body, body.index(found.node))


def _docstring_below(body: list[ast.stmt], index: int) -> str:
    """Return the string that stands directly below a field or constant."""
    match body[index + 1 : index + 2]:
        case [ast.Expr(value=ast.Constant(value=str() as text))]:
            return inspect.cleandoc(text)
        case _:
            return ""


# -- what is said of each


def _section(name: str, found: Definition) -> Iterator[str]:
    node = found.node
    match node:
        case ast.ClassDef():
            yield from _class_section(name, found.module, node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _block(_signature(node, name))
            yield from ("", _markdown(ast.get_docstring(node) or ""))
        case _:
            yield from _block(ast.unparse(node))
            yield from ("", _markdown(_docstring(found)))


def _class_section(name: str, module: str, node: ast.ClassDef) -> Iterator[str]:
    lineage = list(_lineage(module, node))
    members = _members(lineage)
    made_by = members.pop("__init__", None)
    bases = [ast.unparse(base).removeprefix("_") for base in node.bases]
    bases = [base for base in bases if base not in ("ApiJob", "ResponseBody")]
    heading = f"class {name}" + (f"({', '.join(bases)})" if bases else "")
    yield from _block(_signature(made_by.node, name) if made_by is not None else heading)
    yield from ("", _markdown(ast.get_docstring(node) or ""))
    if made_by is not None and (told := ast.get_docstring(made_by.node)):
        yield from ("", _markdown(told))
    yield from _table(
        "Field", {row[0]: row for where, one in reversed(lineage) for row in _fields(one, where)}
    )
    if made_by is not None:
        yield from _option_table(*made_by)
    for name, method in members.items():
        if told := ast.get_docstring(method.node):  # one without is for other parts of Forebay
            yield from ("", f"### {node.name}.{name}", "", *_block(_signature(method.node, name)))
            yield from ("", _markdown(told), *_option_table(*method))


def _option_table(module: str, function: Function) -> Iterator[str]:
    """Describe the keywords that `**options: Unpack[SomeOptions]` stands for."""
    match function.args.kwarg:
        case ast.arg(annotation=ast.Subscript(value=ast.Name(id="Unpack"), slice=of)):
            found = _find(module, ast.unparse(of))
            assert isinstance(found.node, ast.ClassDef)
            yield from _table("Option", {row[0]: row for row in _fields(found.node, module)})
        case _:
            pass


def _table(heading: str, rows: dict[str, Row]) -> Iterator[str]:
    if rows:
        yield from ("", f"| {heading} | Type | Default | |", "| --- | --- | --- | --- |")
    for name, kind, default, told in rows.values():
        yield f"| `{name}` | {_code(kind)} | {_code(default)} | {_cell(_markdown(told))} |"


def _lineage(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield a class and those of its bases that are defined in Forebay."""
    yield module, node
    for base in node.bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        try:
            found = _find(module, ast.unparse(named))
        except (LookupError, OSError):  # a built-in, or another library's
            continue
        if isinstance(found.node, ast.ClassDef):
            yield from _lineage(found.module, found.node)


def _members(lineage: list[tuple[str, ast.ClassDef]]) -> dict[str, Method]:
    return {name: method for one in reversed(lineage) for name, method in _methods(*one)}


def _methods(module: str, node: ast.ClassDef) -> Iterator[tuple[str, Method]]:
    """Yield the public methods of a class; of overloads the last, which is the implementation."""
    for one in node.body:
        match one:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("_") or name == "__init__" or name in SHOWN_ANYWAY:
                    yield name, Method(module, one)
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="waited"), args=[ast.Attribute() as original]),
            ):
                yield name, _waited(module, original)
            case _:
                pass


def _waited(module: str, original: ast.Attribute) -> Method:
    """Return the synchronous method that `sdk.sync_client.waited` makes of an asynchronous one."""
    found = _find(module, ast.unparse(original.value))
    assert isinstance(found.node, ast.ClassDef)
    method = _members(list(_lineage(found.module, found.node)))[original.attr]
    return Method(method.module, ast.FunctionDef(**vars(method.node)))


def _fields(node: ast.ClassDef, module: str) -> Iterator[Row]:
    """Yield the fields that users may read or give."""
    for index, one in enumerate(node.body):
        match one:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                default = ast.unparse(one.value) if one.value is not None else ""
                kind = _plain_type(one.annotation, module)
                yield name, kind, default, _docstring_below(node.body, index)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as value):
                if not name.startswith("_"):
                    yield name, "", ast.unparse(value), _docstring_below(node.body, index)
            case ast.FunctionDef(name="__init__"):
                yield from _attributes(one)
            case _:
                pass


def _plain_type(annotation: ast.expr, module: str) -> str:
    """Return a type without the aliases and the metadata that bodies of the API have."""
    if module.startswith("forebay.api."):
        annotation = _Plain(module).visit(copy.deepcopy(annotation))
    return ast.unparse(annotation)


class _Plain(ast.NodeTransformer):
    """Puts in the place of an alias what it stands for, and of `Annotated` its first argument."""

    def __init__(self, module: str) -> None:
        self._module = module

    def visit_Name(self, node: ast.Name) -> ast.expr:
        try:
            found = _find(self._module, node.id)
        except (LookupError, OSError):  # a built-in, or another library's
            return node
        if isinstance(found.node, ast.AnnAssign) and found.node.value is not None:
            plain: ast.expr = _Plain(found.module).visit(copy.deepcopy(found.node.value))
            return plain
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        match node:
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[first, *_])):
                return cast("ast.expr", self.visit(first))
            case ast.Subscript(value=ast.Name(id="Always" | "Sometimes"), slice=inner):
                return ast.parse(f"{ast.unparse(self.visit(inner))} | None", mode="eval").body
            case _:
                node.slice = self.visit(node.slice)
                return node


def _attributes(made_by: ast.FunctionDef) -> Iterator[Row]:
    """Yield the attributes that `__init__` sets and describes."""
    for index, one in enumerate(made_by.body):
        told = _docstring_below(made_by.body, index)
        match one:
            case ast.Assign(targets=[ast.Attribute(attr=name)]) if told and name[0] != "_":
                yield name, "", "", told
            case ast.AnnAssign(target=ast.Attribute(attr=name)) if told and name[0] != "_":
                yield name, ast.unparse(one.annotation), "", told
            case _:
                pass


# -- how it is written


def _signature(function: Function, name: str) -> str:
    """Return a signature without `self`: on one line, or a parameter on each."""
    kinds = [ast.unparse(one) for one in function.decorator_list]
    if "property" in kinds:
        return f"{name}: {ast.unparse(function.returns)}" if function.returns else name
    returns = ast.unparse(function.returns) if function.returns else "None"
    before = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    after = "" if function.name == "__init__" else f" -> {returns}"
    marks = "".join(f"@{kind}\n" for kind in kinds if kind in ("classmethod", "staticmethod"))
    parameters = list(_parameters(function.args))
    line = f"{before}{name}({', '.join(parameters)}){after}"
    if len(line) > WIDTH:
        apart = "".join(f"    {one},\n" for one in parameters)
        line = f"{before}{name}(\n{apart}){after}"
    return marks + line


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    """Yield each parameter as it is written, the bare `*` included, `self` not."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    defaults: list[ast.expr | None] = [None] * without + list(arguments.defaults)
    for index, (one, default) in enumerate(zip(positional, defaults, strict=True)):
        if index or one.arg not in ("self", "cls"):
            yield _parameter(one, default)
    if arguments.vararg:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(one, default)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    equals = " = " if one.annotation else "="
    return ast.unparse(one) + (f"{equals}{ast.unparse(default)}" if default else "")


def _block(code: str) -> Iterator[str]:
    yield from ("```python", code, "```")


def _markdown(docstring: str) -> str:
    """Return a docstring as Markdown: examples fenced, described parameters as a list."""
    parts = []
    for part in re.split(r"\n\s*\n", docstring.strip()):
        if part.startswith(">>>"):
            parts.append(f"```pycon\n{part}\n```")
        elif part.startswith("`") and re.match(r"`\w+`: ", part):
            items = re.split(r"\n(?=`\w+`: )", part)
            parts.append("\n".join("- " + item.replace("\n", "\n  ") for item in items))
        else:
            parts.append(part)
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""
