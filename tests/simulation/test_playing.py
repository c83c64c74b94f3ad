"""The simulation itself: what its nodes and clients do, and what its report says."""

from forebay.core.options import Options
from forebay.testing.simulation import Report, Scenario, Simulation
from forebay.testing.simulation.scenario import (
    Always,
    Backlog,
    Bursts,
    Changed,
    ClientPlan,
    Closing,
    NodePlan,
    Outage,
    Poisson,
    Times,
)

GPU = NodePlan("gpu", service_s=Always(2.0))


def run(*clients: ClientPlan, node: NodePlan = GPU, **rest: object) -> Report:
    return Simulation(Scenario((node,), clients, **rest), seed=1).run()  # type: ignore[arg-type]  # scenario fields


def starts_s(report: Report) -> list[float]:
    return [round(one.arrived_s + (one.waited_s or 0.0), 6) for one in report.requests]


def test_one_slot_serves_one_after_the_other() -> None:
    report = run(ClientPlan("ann", Times((0.0, 0.0, 1.0))))
    assert starts_s(report) == [0.0, 2.0, 4.0]
    assert report.ended_s == 6.0


def test_a_cold_model_is_loaded_first_and_puts_out_the_least_recently_used() -> None:
    node = NodePlan(
        "gpu", models=("a", "b", "c"), service_s=Always(2.0), swaps=True, loaded=("a", "b"),
        loaded_max=2, load_s=10.0,
    )  # fmt: skip
    models = {"c": 1.0, "b": 1.0, "a": 1.0}
    report = run(
        ClientPlan("ann", Times((0.0, 20.0, 40.0)), models=models, cycle_models=True), node=node
    )
    assert report.loads == 2  # c puts out a, b is still there, a puts out c
    assert report.ended_s == 52.0


def test_a_crash_before_the_first_byte_returns_the_request_to_another_node() -> None:
    nodes = (GPU, NodePlan("spare", service_s=Always(2.0)))
    scenario = Scenario(
        nodes,
        (ClientPlan("ann", Times((0.0,))),),
        disturbances=(Outage(0.1, "gpu", 30.0), Outage(0.2, "spare", 1.0, "draining")),
    )
    report = Simulation(scenario, seed=1).run()
    assert report.outcomes == {"served": 1}


def test_a_crash_in_mid_answer_fails_the_request() -> None:
    report = run(ClientPlan("ann", Times((0.0,))), disturbances=(Outage(1.5, "gpu", 30.0),))
    assert report.outcomes == {"failed": 1}


def test_an_unseen_crash_fails_attempts_until_a_probe_finds_it() -> None:
    report = run(
        ClientPlan("ann", Times((1.0,))),
        disturbances=(Outage(0.5, "gpu", 12.0, seen=False),),
        probe_s=5.0,
    )
    assert report.outcomes == {"served": 1}
    assert report.ended_s > 12.5


def test_more_slots_are_used_at_once_and_fewer_drain() -> None:
    report = run(
        ClientPlan("ann", Times((0.0,) * 8)),
        disturbances=(Changed(1.0, "gpu", 3), Changed(2.5, "gpu", 1)),
    )
    assert starts_s(report)[:6] == [0.0, 1.0, 1.0, 2.0, 4.0, 6.0]


def test_a_backlog_keeps_its_depth_until_the_end() -> None:
    report = run(ClientPlan("ann", Backlog(3)), duration_s=20.0)
    assert report.users["ann"].served == 12
    assert report.users["ann"].wait_s_max == 4.0


def test_clients_that_give_up_vanish_and_are_revoked_leave_nothing_behind() -> None:
    report = run(
        ClientPlan("ann", Poisson(2.0), cancel_rate=0.5, patience_s=Always(1.0)),
        ClientPlan("bob", Poisson(2.0), vanish_rate=0.5, vanish_on_grant_rate=0.3),
        ClientPlan("eve", Bursts(5, Always(3.0)), revoke_rate=0.5),
        duration_s=30.0,
    )
    assert report.outcomes["cancelled"] > 20
    assert sum(report.outcomes.values()) == len(report.requests)


def test_a_shutdown_answers_every_waiter() -> None:
    report = run(ClientPlan("ann", Times((0.0,) * 4 + (5.0,))), disturbances=(Closing(3.0),))
    assert report.outcomes == {"served": 2, "shutting_down": 3}


def test_the_report_counts_by_user_and_reads_well() -> None:
    report = run(
        ClientPlan("ann", Times((0.0, 0.0)), priorities={"high": 1}),
        ClientPlan("bob", Times((0.5,)), priorities={"low": 1}),
        options=Options(max_size=1),
    )
    assert report.outcomes == {"served": 2, "queue_full": 1}
    assert report.users["ann"].served == 2
    assert (report.users["bob"].arrived, report.users["bob"].served) == (1, 0)
    text = str(report)
    for part in ("seed 1", "2 served", "1 queue_full", "ann", "bob"):
        assert part in text
