"""The panels of `forebay top`: functions from what there is to lines of text.

A panel is told how many cells and rows it has at least; the screen scrolls to
what is below. `once` puts them one below the other, for a pipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from forebay.terminal.requests_panel import requests
from forebay.terminal.text import (
    BAD,
    BUSY,
    DIM,
    ENDLESS,
    GOOD,
    STRONG,
    WARN,
    Column,
    amount,
    bar,
    brief,
    chart,
    counted,
    fit,
    heading,
    known,
    line,
    memory,
    named_texts,
    numeric,
    plural,
    share,
    slot_bar,
    speed,
    table,
    wrap,
)
from forebay.terminal.view import step

if TYPE_CHECKING:
    from rich.text import Text

    from forebay.api.events import DashboardSnapshot, NodeSnapshot, RecentError, TroubleSnapshot
    from forebay.api.queue import Fleet, Replica
    from forebay.terminal.view import TopView

NODE_SIGNS = {
    "online": ("●", GOOD), "loading": ("◐", BUSY), "draining": ("◒", WARN), "offline": ("✕", BAD),
}  # fmt: skip
REPLICA_SIGNS = {"leading": ("★", GOOD), "following": ("●", GOOD), "lost": ("✕", BAD)}
TROUBLE_SIGNS = {"error": ("✕ ", BAD), "warning": ("▲ ", WARN)}
PROBLEM_SIGNS = {"error": ("✕ ", BAD), "rejection": ("• ", WARN)}
MODES = {
    "coordinated": "one queue for all",
    "seeking": "looking for a leader",
    "alone": "alone, the store is unreachable",
    "cut_off": "cut off, nothing new starts here",
}
HELP = (
    ("q, Ctrl-C", "leave"),
    ("Tab", "go from the nodes to the line, and back; the wheel scrolls to what is below"),
    ("up, down, j, k", "choose a node, or a request of the line; so does a click"),
    ("Enter", "all that is known of the chosen node"),
    ("d, r", "drain the chosen node: nothing new starts there; resume it"),
    ("c", "cancel the chosen request of the line"),
    ("/", "show only nodes, models and requests with this text; Esc shows all"),
    ("p, Space", "hold the picture still, and let it go on"),
    ("State", "● online, ◐ loading, ◒ draining, ✕ offline; Since: for how long"),
    ("Slots", "▰▱▱ one of three is taken"),
    ("Model", "what the node has in memory, +1 where there is one more"),
    ("Fail", "how often the node has failed"),
    ("P50, P90", "how long half, and nine in ten, of those who come now wait for a model"),
)


# -- the first line, and what is asked and answered


def header(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return the gateway at the left, the connection and the clock at the right."""
    left = line((f" Forebay {view.hello.gateway[:15]}".rstrip(), STRONG), "  ", view.url)
    right = line(*_connection(view), (f"  {view.now:%H:%M:%S}" if view.now else "", DIM))
    return [line(fit(left, cells - right.cell_len - 1), " ", right)]


def _connection(view: TopView) -> tuple[tuple[str, str], tuple[str, str]]:
    if view.lost_s is not None:
        away = brief(view.now_s - view.lost_s)
        return ("✕", BAD), (f" reconnecting, away for {away}", STRONG)
    if not view.is_live:
        return ("◐", BUSY), (" connecting", "")
    if view.is_paused:
        return ("‖", WARN), (" paused, p goes on", STRONG)
    if view.snapshot.draining:
        return ("◒", WARN), (" stopping", STRONG)
    if not view.snapshot.ready:
        return ("✕", BAD), (" not ready", STRONG)
    word = "live" if view.now else "ready"  # one look is not live
    return ("●", GOOD), (f" {word}, up {brief(view.snapshot.uptime_seconds)}", "")


def caption(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return why the gateway cannot be reached, else what a demo says is going on, if one does."""
    if view.lost_reason:
        return [fit(line((f" {view.lost_reason}", BAD)), cells)]
    caption = view.snapshot.caption
    return [fit(line((" → ", BUSY), (caption.en, STRONG)), cells)] if caption else []


def question(view: TopView, verb: str, name: str) -> list[Text]:
    """Return what is asked before something is done."""
    node = view.node(name)
    running = plural(node.in_flight if node is not None else 0, "request")
    questions = {
        "cancel": f"Cancel {name}? Its client gets an error (499).",
        "resume": f"Resume {name}, so that it is used again?",
        "drain": f"Drain {name}? Nothing new starts there; {running} may finish.",
    }
    return [line((questions[verb], STRONG)), line(("y yes, any other key no", DIM))]


def answer(name: str, answered: dict[str, object]) -> str:
    """Return what the gateway has done to a node or a request, in words."""
    running, state = answered.get("in_flight"), answered.get("state")
    if state == "cancelled":
        return f"{name} is cancelled."
    if state != "draining":
        return f"{name} is used again; it is {state}."
    left = f" {running} still run there." if running else ""
    return f"{name} is draining: nothing new starts there.{left} r resumes it."


# -- the numbers that matter most


class Figure(NamedTuple):
    """A number, what stands beside it, and its name."""

    value: str
    beside: str
    name: str
    is_bad: bool = False


def figures_for(view: TopView, cells: int) -> list[Figure]:
    """Return as many numbers as have room."""
    queue = view.snapshot.queue
    usable = [node for node in view.snapshot.nodes if node.state in ("online", "loading")]
    room = f" of {counted(queue.max_size)}" if queue.enabled else " queue off"
    is_full = queue.enabled and 0 < queue.max_size <= queue.waiting
    slots = f" of {counted(sum(node.slots for node in usable))}"
    rejected = queue.rejected_per_minute
    found = (
        Figure(counted(queue.waiting), room, "waiting", is_full),
        Figure(counted(queue.processing), slots, "running"),
        Figure(brief(queue.average_wait_seconds), "", "mean wait"),
        Figure(counted(queue.served_per_minute), "", "completed / min"),
        Figure(counted(rejected), "", "refused / min", rejected > 0),
        Figure(brief(queue.average_service_seconds), "", "mean run"),
        Figure(counted(queue.timeouts_total), "", "timed out"),
        Figure(counted(queue.served_total), "", "completed in all"),
        Figure(counted(queue.model_swaps_total), "", "model swaps"),
    )
    return list(found[: max(2, cells // 16, min(5, (cells + 1) // 12))])


def figures(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return the numbers, and below each what it is; in one row only that, for big digits."""
    found = figures_for(view, cells)
    wide = cells // len(found)
    numbers, names = line(), line()
    for value, beside, name, is_bad in found:
        if wide < 16:
            name = name.removesuffix(" / min")
        shown = line((f" {value}", BAD if is_bad else STRONG), (beside, DIM))
        numbers.append_text(fit(shown, wide))
        names.append_text(fit(line((f" {name}{beside if rows == 1 else ''}", DIM)), wide))
    return [numbers, names][-rows:]


# -- the queue


def queue_bars(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return who waits by priority, and where there is room what was counted so far."""
    queue = view.snapshot.queue
    names = list(dict.fromkeys([*view.hello.priorities, *queue.by_priority]))[:4]
    counts = [queue.by_priority.get(name, 0) for name in names]
    top = max(view.timeline.peak_by_priority, *counts, 4)  # one of one is not a long queue
    made = [heading("Queue by priority", cells)]
    for name, count in zip(names, counts, strict=True):
        drawn = fit(line((bar(count, top, cells - 14), BUSY)), cells - 14)
        number = fit(amount(count, STRONG), 5, right=True)
        made.append(line(fit(line(name), 7), " ", drawn, " ", number))
    totals = [
        ("completed", queue.served_total), ("refused", queue.rejected_total),
        ("timed out", queue.timeouts_total), ("cancelled", queue.cancelled_total),
        ("retried", queue.retries_total), ("model swaps", queue.model_swaps_total),
    ]  # fmt: skip
    texts = [line(f"{counted(count):>5} ", (f"{name:13}", DIM)) for name, count in totals]
    if rows >= len(made) + 5:
        made += [line(), line(("Since the gateway began:", DIM))]
        made += [line(*texts[place : place + 2]) for place in (0, 2, 4)]
    return made


def queue_chart(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return depth, and below it, in a third of the rows, what was completed."""
    columns = max(1, cells - 19)
    minutes = max(1, round(columns * step(columns) / 60))
    made = [heading(f"Last {minutes} min, {step(columns)} s a column", cells)]
    low = max(1, (rows - 1) // 3)
    for name, style, values, height in (
        ("waiting", BUSY, view.timeline.depth(columns), rows - 1 - low),
        ("completed", GOOD, view.timeline.served(columns), low),
    ):
        top = max(values, default=0)
        drawn = chart([0] * (columns - len(values)) + values, top, height)
        for row, text in enumerate(drawn, 1):
            most = f" max {counted(top)}" if row == 1 else ""
            label = name if row == height else ""
            made.append(line(f"{label:10}", (text, style), (most, DIM)))
    return made


# -- the gateways that share the queue


def fleet(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return the gateways that share the queue; nothing where there is one."""
    found = view.snapshot.fleet
    if found is None:
        return []
    alive = sum(replica.state != "lost" for replica in found.replicas)
    title = f"Gateways {alive}/{len(found.replicas)}"
    words = MODES.get(found.mode, found.mode)
    age_s = found.counted_seconds_ago or 0.0
    age = f", figures {brief(age_s)} old" if age_s > 1 else ""
    said = f"Version · {words}{age}, leader no. {counted(found.epoch)}"
    return table(title, _replica_columns(found, said), found.replicas, cells)


def _replica_columns(found: Fleet, said: str) -> list[Column]:
    def name(replica: Replica) -> Text:
        here = (" here" if replica.name == found.me else "", BUSY)
        return line("  ", line(replica.name)[:11], here)

    def version(replica: Replica) -> Text:
        flaws = _flaws(found, replica)
        return line(replica.version, (" ▲ " if flaws else "", WARN), flaws)

    return [
        Column("", 18, name),
        Column("State", 12, lambda one: line(*_replica_state(found, one))),
        numeric("Wait", 5, lambda one: amount(one.waiting)),
        numeric("Run", 5, lambda one: amount(one.running)),
        numeric("Lent", 5, lambda one: amount(one.lent)),
        numeric("Heard", 6, lambda one: known(brief(one.heard_seconds), DIM), 60),
        Column(said, 10, version, 0, ENDLESS),
    ]


def _replica_state(found: Fleet, replica: Replica) -> tuple[tuple[str, str], str]:
    state = replica.state
    if found.mode in ("alone", "cut_off") and state != "lost":  # it knows no other's state
        state = "alone" if replica.name == found.me else "unseen"
    return REPLICA_SIGNS.get(state, ("?", WARN)), f" {state}"


def _flaws(found: Fleet, replica: Replica) -> str:
    here = next((one for one in found.replicas if one.name == found.me), replica)
    flaws = [] if replica.same_settings else ["other settings"]
    return ", ".join(flaws + ([] if replica.version == here.version else ["other version"]))


# -- the nodes


def nodes(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return the nodes, each in a line; or why there is none."""
    found, unfiltered = view.nodes(), view.snapshot.nodes
    total = f"{len(found)}/{len(unfiltered)}" if view.filter else f"{len(found)}"
    if found:
        return table(f"Nodes {total}", NODE_COLUMNS, found, cells)
    none = f"no node matches /{view.filter}; Esc shows all" if unfiltered else NO_NODES
    return [heading(f"Nodes {total}: {none}", cells)]


def _state(node: NodeSnapshot) -> Text:
    return line(NODE_SIGNS.get(node.state, ("?", WARN)), " ", node.state)


def _slots(node: NodeSnapshot) -> Text:
    taken, free = slot_bar(node.in_flight, node.slots, 6)
    blank = " " * (7 - len(taken) - len(free))
    numbers = f"{blank}{counted(node.in_flight)}/{counted(node.slots)}"
    return line((taken, BUSY), (free, DIM), numbers)


def _model(node: NodeSnapshot) -> Text:
    names = node.models if node.loaded is None else node.loaded
    count = max(node.models_total, len(names)) if node.loaded is None else len(names)
    more = f" +{count - 1}" if count > 1 else ""
    if not names:
        return known("-")
    return line(("▲ " if node.failing else "", WARN), names[0], (more, DIM))


def _failures(node: NodeSnapshot) -> Text:
    return known(counted(sum(node.failures.values())) if node.failures else "-", STRONG)


NO_NODES = "add one with forebay nodes add URL"
NODE_COLUMNS = (
    Column("", 14, lambda node: line("  ", node.name), 0, 30),
    Column("Kind", 9, lambda node: line(node.kind or ""), 109, 10),
    Column("State", 10, _state),
    Column("Slots", 12, _slots, 38, 13),
    Column("Model", 15, _model, 54, 34),
    numeric("GPU", 4, lambda node: known(share(node.gpu_load)), 59, 5),
    numeric("VRAM", 7, lambda one: known(memory(one.vram_used_bytes, one.vram_total_bytes)), 67, 9),
    numeric("Fail", 4, _failures, 72, 5),
    numeric("Since", 6, lambda node: known(brief(node.state_seconds)), 79, 7),
    numeric("Speed", 5, lambda node: known(speed(node.speed)), 96, 6),
    Column("Last error", 24, lambda node: line(node.last_error or ""), 134, ENDLESS),
)


def _kind(node: NodeSnapshot) -> str:
    marks = (" simulated" if node.simulated else "", " guarded" if node.guarded else "")
    return ",".join([node.kind or "kind unknown", *filter(None, marks)])


def _speed(node: NodeSnapshot) -> str:
    if node.speed is None:
        return "not measured"
    return f"{node.speed:.2f} x usual, measured {brief(node.speed_measured_seconds_ago)} ago"


def node_facts(view: TopView, name: str | None, cells: int) -> list[Text]:
    """Return all that is known of a node; nothing if it is not there any more."""
    node = view.node(name)
    if node is None:
        return []
    failures = ", ".join(f"{kind} {counted(count)}" for kind, count in node.failures.items())
    facts = (
        ("Kind", _kind(node)),
        ("State", f"{node.state} for {brief(node.state_seconds)}"),
        ("Slots", f"{node.slots}: {node.slots_reason}" if node.slots_reason else str(node.slots)),
        ("Models", f"{node.models_total}: {', '.join(node.models)}" if node.models else ""),
        ("In memory", "all of them" if node.loaded is None else ", ".join(node.loaded)),
        ("Speed", _speed(node)),
        ("Cache", "" if node.kv_free_tokens is None else f"{node.kv_free_tokens:,} tokens free"),
        ("Failing", ", ".join(node.failing)),
        ("Failures", failures),
        ("Last error", node.last_error or ""),
    )
    return named_texts(f"Node {node.name}", facts, cells)


def help_page(cells: int) -> list[Text]:
    """Return what the keys and signs mean."""
    return named_texts("Keys and signs", HELP, cells)


# -- models, jobs, and what ended badly


def models(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return models with who waits for them."""
    found, room = view.models(), rows - 1
    title = f"Models {room}/{len(found)}" if len(found) > room else "Models"
    none = [] if found else [line(("none matches" if view.filter else "none yet", DIM))]
    return table(title, MODEL_COLUMNS, found[:room], cells) + none


MODEL_COLUMNS = (
    Column("", 8, lambda model: line(model.model), 0, ENDLESS),
    numeric("Wait", 4, lambda model: amount(model.waiting, STRONG)),
    numeric("Run", 5, lambda one: line(f"{counted(one.processing)}/{counted(one.slots)}")),
    numeric("P50", 6, lambda model: known(brief(model.wait_p50_seconds), DIM), 26),
    numeric("P90", 6, lambda model: known(brief(model.wait_p90_seconds), DIM), 38),
)


def jobs(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return jobs by type and status, then batches and sessions."""
    types, others = view.snapshot.jobs.types, _other_work(view.snapshot)
    made = table("Jobs", JOB_COLUMNS, types[: max(1, rows - 1 - len(others))], cells)
    others = others if types or others else ["none"]
    return made + [line((text, DIM)) for text in others]


def _other_work(snapshot: DashboardSnapshot) -> list[str]:
    batches, sessions = snapshot.jobs.batches, snapshot.sessions
    said = []
    if batches.open:
        done = f"{counted(batches.completed)}/{counted(batches.lines)}"
        failed = f", {counted(batches.failed)} failed" if batches.failed else ""
        said.append(f"{plural(batches.open, 'batch', 'batches')}: {done}{failed}")
    if sessions.held:
        pending = sessions.pending_prompts
        waiting = f", {counted(pending)} waiting" if pending else ""
        said.append(f"{plural(sessions.held, 'session')}{waiting}")
    return said


JOB_COLUMNS = (
    Column("", 8, lambda jobs: line(jobs.type), 0, ENDLESS),
    numeric("Wait", 4, lambda jobs: amount(jobs.queued, STRONG), 0, 5),
    numeric("Run", 4, lambda jobs: amount(jobs.running), 0, 5),
    numeric("Done", 4, lambda jobs: amount(jobs.completed), 0, 5),
    numeric("Fail", 4, lambda jobs: amount(jobs.failed, BAD), 0, 5),
    numeric("Gone", 4, lambda jobs: amount(jobs.cancelled), 38, 5),
)


def problems(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return what ended badly in the last quarter of an hour, by reason."""
    found = view.snapshot.problems
    none = [] if found else [line(("none in 15 min", DIM))]
    return table("Problems", PROBLEM_COLUMNS, found, cells) + none


def remedies(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return what to do about what ended badly; nothing where that is not known."""
    problems = view.snapshot.problems
    said = tuple((one.code, one.remedy.en) for one in problems if one.remedy.en)
    return named_texts("What to do about the problems", said, cells) if said else []


def _problem(problem: RecentError) -> Text:
    return line(PROBLEM_SIGNS.get(problem.kind, ("• ", BUSY)), problem.code)


PROBLEM_COLUMNS = (
    Column("", 15, _problem, 0, ENDLESS),
    numeric("1 m", 4, lambda problem: amount(problem.last_minute, STRONG), 26),
    numeric("15 m", 4, lambda problem: amount(problem.last_15_minutes)),
    numeric("Ago", 6, lambda problem: known(brief(problem.seconds_ago), DIM), 36),
)


# -- what is wrong now


def troubles(view: TopView, cells: int, rows: int) -> list[Text]:
    """Return what is wrong now, in words; advice where there is room for it."""
    found = view.snapshot.troubles
    made = [heading(f"Troubles {len(found)}" if found else "Troubles", cells)]
    for trouble in found:
        made += _trouble(trouble, cells)
    return made if found else [*made, line(("✓ ", GOOD), "Nothing is wrong.")]


def _trouble(trouble: TroubleSnapshot, cells: int) -> list[Text]:
    sign = TROUBLE_SIGNS.get(trouble.level, ("• ", BUSY))
    texts = wrap(trouble.text.en, cells - 2)
    advice = wrap(trouble.advice.en, cells - 4, 3) if trouble.advice is not None else []
    made = [line("  " if place else sign, (text, STRONG)) for place, text in enumerate(texts)]
    marks = ("  → ", "    ", "    ")
    return made + [line((mark + text, DIM)) for mark, text in zip(marks, advice, strict=False)]


# -- all of them together

STILL_REQUESTS_MAX = 20
"""Requests in one picture; `forebay queue list` has all."""


def once(view: TopView, cells: int) -> str:
    """Return everything, in as many lines as it takes."""
    wide = max(20, cells)
    parts = [[*header(view, wide, 1), line(), *caption(view, wide, 1), *figures(view, wide, 2)]]
    parts += [queue_bars(view, wide, 4), queue_chart(view, wide, 4)]
    parts += [requests(view, wide, STILL_REQUESTS_MAX + 1)] if view.has_requests else []
    others = (fleet, nodes, models, jobs, problems, troubles)
    parts += [make(view, wide, ENDLESS) for make in others]
    texts = ["\n".join(fit(text, wide).plain.rstrip() for text in part) for part in parts if part]
    return "\n\n".join(texts)
