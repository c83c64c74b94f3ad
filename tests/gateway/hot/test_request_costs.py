"""A request may not cost more than it did: counted work, so that no machine decides about it.

`python -m harness.request_costs` writes the new counts down; where they rise, commit them with what
that bought.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import forebay.core.scheduler
from harness.request_costs import BUDGET, count_costs, measured, this_python

if TYPE_CHECKING:
    from harness.recordings import Recording

MORE_MAX = 0.03
BUDGETS = json.loads(BUDGET.read_text())


@pytest.mark.skipif(
    not forebay.core.scheduler.__file__.endswith(".py"),
    reason="compiled code makes no calls that can be counted",
)
@pytest.mark.skipif(this_python() not in BUDGETS, reason="no budget for this version of Python")
@pytest.mark.parametrize("recording", measured(), ids=lambda recording: recording.name)
async def test_a_recorded_request_costs_no_more_than_it_did(recording: Recording) -> None:
    budget = BUDGETS[this_python()][recording.name]
    for kind, count in (await count_costs(recording)).items():
        assert count <= (1 + MORE_MAX) * budget[kind], (
            f"{kind}: {count} instead of {budget[kind]}; where that is meant, run "
            "`python -m harness.request_costs` and commit what it writes, saying what it bought"
        )
