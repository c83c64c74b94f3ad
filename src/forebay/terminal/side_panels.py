"""The lower part of the picture: models, jobs, what ended badly, and what is wrong now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.terminal.amounts import brief, counted, plural
from forebay.terminal.lines import Column, Line, Piece, fitted, heading, table_row

if TYPE_CHECKING:
    from forebay.terminal.pen import Pen
    from forebay.terminal.values import JobType, Model, Problem, Snapshot, Trouble
    from forebay.terminal.view import View

LEVELS = {"error": "bad", "warning": "warn", "info": "busy"}
KINDS = {"rejection": "warn", "error": "bad", "caller": "busy"}


def _number(value: int, style: str = "") -> Line:
    return [Piece(counted(value), style if value else "dim")]


# -- models


def model_lines(pen: Pen, view: View, cells: int, rows: int) -> list[Line]:
    """Return models with who waits for them."""
    models = view.models()
    wide = cells >= 40
    numbers = [Column("Wait", 4, True), Column("Run", 5, True), Column("P50", 6, True)]
    numbers += [Column("P90", 6, True)] if wide else []
    first = cells - sum(column.cells + 1 for column in numbers)
    columns = [Column(_counted_title("Models", len(models), rows), first), *numbers]
    made = [heading(pen, columns, cells)]
    if not models:
        made.append(_note(pen, "none matches" if view.filter else "none yet", cells))
    made += [table_row(pen, columns, _model_cells(pen, model, wide)) for model in models[:rows]]
    return [fitted(pen, line, cells) for line in made[: rows + 1]]


def _model_cells(pen: Pen, model: Model, wide: bool) -> list[Line]:
    waits = [model.wait_p50_seconds, *([model.wait_p90_seconds] if wide else [])]
    running = f"{counted(model.processing)}/{counted(model.slots)}"
    return [
        [Piece(pen.clean(model.model))],
        _number(model.waiting, "strong"),
        [Piece(running, "" if model.processing else "dim")],
        *([Piece(brief(wait) if wait is not None else pen.glyphs.none, "dim")] for wait in waits),
    ]


def _counted_title(title: str, count: int, rows: int) -> str:
    return f"{title} {rows}/{count}" if count > rows else title


def _note(pen: Pen, text: str, cells: int) -> Line:
    return fitted(pen, [Piece(text, "dim")], cells)


# -- jobs


def job_lines(pen: Pen, snapshot: Snapshot, cells: int, rows: int) -> list[Line]:
    """Return jobs by type and status, then batches and sessions."""
    types = snapshot.jobs.types
    wide = cells >= 40
    names = ("Wait", "Run", "Done", "Fail", *(("Gone",) if wide else ()))
    numbers = [Column(name, 5 if wide else 4, True) for name in names]
    first = cells - sum(column.cells + 1 for column in numbers)
    columns = [Column("Jobs", first), *numbers]
    others = _others(snapshot)
    room = max(1, rows - len(others)) if types else 0
    made = [heading(pen, columns, cells)]
    made += [table_row(pen, columns, _job_cells(pen, jobs, wide)) for jobs in types[:room]]
    made += [fitted(pen, [Piece(text, "dim")], cells) for text in others]
    if len(made) == 1:
        made.append(_note(pen, "none", cells))
    return [fitted(pen, line, cells) for line in made[: rows + 1]]


def _job_cells(pen: Pen, jobs: JobType, wide: bool) -> list[Line]:
    cells = [
        [Piece(pen.clean(jobs.type))],
        _number(jobs.queued, "strong"),
        _number(jobs.running),
        _number(jobs.completed),
        _number(jobs.failed, "bad"),
    ]
    return [*cells, _number(jobs.cancelled)] if wide else cells


def _others(snapshot: Snapshot) -> list[str]:
    batches, sessions = snapshot.jobs.batches, snapshot.sessions
    said = []
    if batches.open:
        done = f"{counted(batches.completed)}/{counted(batches.lines)}"
        failed = f", {counted(batches.failed)} failed" if batches.failed else ""
        said.append(f"{plural(batches.open, 'batch', 'batches')}: {done}{failed}")
    if sessions.held:
        pending = (
            f", {counted(sessions.pending_prompts)} waiting" if sessions.pending_prompts else ""
        )
        said.append(f"{plural(sessions.held, 'session')}{pending}")
    return said


# -- what ended badly


def problem_lines(pen: Pen, snapshot: Snapshot, cells: int, rows: int) -> list[Line]:
    """Return what ended badly in the last quarter of an hour, by reason."""
    wide = cells >= 36
    numbers = [Column("1 m", 4, True)] if cells >= 26 else []
    numbers += [Column("15 m", 4, True)]
    numbers += [Column("Ago", 6, True)] if wide else []
    first = cells - sum(column.cells + 1 for column in numbers)
    columns = [Column("Problems", first), *numbers]
    made = [heading(pen, columns, cells)]
    if not snapshot.problems:
        made.append(_note(pen, "none in 15 min", cells))
    for problem in snapshot.problems[:rows]:
        shown = _problem_cells(pen, problem)
        kept = [
            shown[0],
            *([shown[1]] if cells >= 26 else []),
            shown[2],
            *([shown[3]] if wide else []),
        ]
        made.append(table_row(pen, columns, kept))
    return [fitted(pen, line, cells) for line in made[: rows + 1]]


def _problem_cells(pen: Pen, problem: Problem) -> list[Line]:
    mark = pen.glyphs.error if problem.kind == "error" else pen.glyphs.note
    return [
        [Piece(f"{mark} ", KINDS.get(problem.kind, "warn")), Piece(pen.clean(problem.code))],
        _number(problem.last_minute, "strong"),
        _number(problem.last_15_minutes),
        [Piece(brief(problem.seconds_ago), "dim")],
    ]


def remedy_lines(pen: Pen, snapshot: Snapshot, cells: int, rows: int) -> list[Line]:
    """Return what ended badly, each with what to do about it."""
    made = problem_lines(pen, snapshot, cells, 0)
    for problem in snapshot.problems:
        made += problem_lines(pen, _only(snapshot, problem), cells, 1)[1:]
        if problem.remedy is not None:
            made += [
                fitted(pen, [Piece(f"  {text}", "dim")], cells)
                for text in pen.wrap(problem.remedy.en, cells - 2, 2)
            ]
    if not snapshot.problems:
        made = problem_lines(pen, snapshot, cells, 1)
    return made[:rows]


def _only(snapshot: Snapshot, problem: Problem) -> Snapshot:
    return replace(snapshot, problems=[problem])


# -- what is wrong now


def trouble_rows_wanted(pen: Pen, snapshot: Snapshot, cells: int) -> int:
    """Return how many rows the troubles would take if they could."""
    return len(_all_trouble_lines(pen, snapshot.troubles, cells))


def trouble_lines(pen: Pen, snapshot: Snapshot, cells: int, rows: int) -> list[Line]:
    """Return the heading and what is wrong now, in words; advice where there is room for it."""
    count = len(snapshot.troubles)
    title = f"Troubles {count}" if count else "Troubles"
    made = [heading(pen, [Column(title, cells)], cells)]
    if not count:
        calm = [Piece(f"{pen.glyphs.good} ", "good"), Piece("Nothing is wrong.")]
        return [*made, fitted(pen, calm, cells)][: rows + 1]
    lines = _all_trouble_lines(pen, snapshot.troubles, cells)
    if len(lines) > rows:
        lines = _trouble_lines_in(pen, snapshot.troubles, cells, rows)
    return made + lines[:rows]


def _trouble_lines_in(pen: Pen, troubles: list[Trouble], cells: int, rows: int) -> list[Line]:
    """Return each trouble in one line, the worst first, with advice as far as there is room."""
    spare = rows - len(troubles)
    if spare < 0:
        shown = [_trouble_line(pen, trouble, cells) for trouble in troubles[: max(0, rows - 1)]]
        left = len(troubles) - len(shown)
        return [*shown, _note(pen, f"  and {left} more: key 4 shows them", cells)]
    made: list[Line] = []
    for trouble in troubles:
        advice = _advice(pen, trouble, cells, spare)
        spare -= len(advice)
        made += [_trouble_line(pen, trouble, cells), *advice]
    return made


def _all_trouble_lines(pen: Pen, troubles: list[Trouble], cells: int) -> list[Line]:
    made: list[Line] = []
    for trouble in troubles:
        texts = pen.wrap(trouble.text.en, cells - 2, 4)
        made.append(_trouble_line(pen, trouble, cells, texts[0] if texts else ""))
        made += [fitted(pen, [Piece(f"  {text}")], cells) for text in texts[1:]]
        made += _advice(pen, trouble, cells)
    return made


def _trouble_line(pen: Pen, trouble: Trouble, cells: int, text: str | None = None) -> Line:
    marks = {"error": pen.glyphs.error, "warning": pen.glyphs.warning}
    mark = Piece(f"{marks.get(trouble.level, pen.glyphs.note)} ", LEVELS.get(trouble.level, "busy"))
    return fitted(pen, [mark, Piece(trouble.text.en if text is None else text, "strong")], cells)


def _advice(pen: Pen, trouble: Trouble, cells: int, lines_max: int = 3) -> list[Line]:
    if trouble.advice is None:
        return []
    texts = pen.wrap(trouble.advice.en, cells - 4, min(3, lines_max))
    marks = [f"  {pen.glyphs.arrow} ", *["    "] * len(texts)]
    return [
        fitted(pen, [Piece(mark, "dim"), Piece(text, "dim")], cells)
        for mark, text in zip(marks, texts, strict=False)
    ]
