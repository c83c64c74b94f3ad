"""What every ledger of sessions must do, whatever database it is kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.api.sessions import TokenUsage, TurnError
from forebay.errors import NotAllowed
from forebay.sessions.conversation import TURNS_MAX, CompletedTurn, Message
from forebay.sessions.ledger import BY_NAME, PRUNE_EVERY, SessionLedger
from forebay.sessions.prompt import Prompt, Sender, TurnResult
from forebay.sessions.record import Recovered, SessionRecord

if TYPE_CHECKING:
    from collections.abc import Callable


LIMIT_S = 10.0  # only turns a hang into a failure
TEXT = "naïve \u0000 日本語 \U0001f600 'quoted' {json: \"no\"}"


def record(name: str = "ses_1") -> SessionRecord:
    base = (CompletedTurn((Message("user", "a"),), "b"),)
    return SessionRecord(name, "key", "m", TEXT, 7, {"stop": TEXT}, base, 100.0, 101.0)


def prompt(seq: int = 1) -> Prompt:
    sender = Sender("key", "user", "high", 2.5, b"secret")
    made = Prompt(f"prm_{seq}", seq, (Message("user", TEXT),), sender, 200.0 + seq)
    made.deadline_at = 300.0
    return made


def recovered(ledger: SessionLedger) -> list[Recovered]:
    records = ledger.recover().result(LIMIT_S)
    return [ledger.load(record).result(LIMIT_S) for record in records]


class SessionLedgerContract:
    """Subclass it and provide `ledger` and `open_ledger`; `many` where a second may try."""

    many = False

    def test_a_session_is_found_as_it_was_made_and_each_time_in_another_life(
        self, ledger: SessionLedger
    ) -> None:
        ledger.create(record()).result(LIMIT_S)
        for life in (1, 2):
            (found,) = recovered(ledger)
            expected = record()
            assert found.record.life == life
            for name in ("id", "owner", "model", "system", "max_tokens", "options", "base"):
                assert getattr(found.record, name) == getattr(expected, name)

    def test_a_namesake_made_later_does_not_adopt_what_nobody_did(
        self, ledger: SessionLedger
    ) -> None:
        for name in ("ann", "bob"):
            made = SessionRecord(name, BY_NAME + name, "m", TEXT, 7, {}, (), 100.0, 101.0)
            ledger.create(made).result(LIMIT_S)
        ledger.adopt({"ann": "key:1"}).result(LIMIT_S)
        ledger.adopt({"ann": "key:2", "bob": "key:3"}).result(LIMIT_S)
        assert [one.owner for one in ledger.recover().result(LIMIT_S)] == ["key:1", "bob"]

    def test_a_prompt_is_found_as_far_as_it_came(self, ledger: SessionLedger) -> None:
        ledger.create(record()).result(LIMIT_S)
        one, two, three = prompt(1), prompt(2), prompt(3)
        for each in (one, two, three):
            ledger.accept("ses_1", each).result(LIMIT_S)
        two.started_at = 210.0
        ledger.start(two).result(LIMIT_S)
        three.status = "failed"
        three.result = TurnResult(error=TurnError("node_failed", TEXT, 500))
        ledger.end(three, 12, 220.0).result(LIMIT_S)
        (found,) = recovered(ledger)
        assert [each.status for each in found.prompts] == ["queued", "running", "failed"]
        assert found.events == {"prm_3": 12}
        assert found.prompts[2].result == three.result
        first = found.prompts[0]
        assert (first.messages, first.deadline_at) == (one.messages, 300.0)
        assert (first.sender.user, first.sender.priority) == ("user", "high")
        assert found.prompts[1].waited_ms == 8000

    def test_the_callers_own_credentials_are_never_written(self, ledger: SessionLedger) -> None:
        ledger.create(record()).result(LIMIT_S)
        ledger.accept("ses_1", prompt()).result(LIMIT_S)
        (found,) = recovered(ledger)
        assert found.prompts[0].sender.credentials == b""

    def test_an_answer_comes_back_whole(self, ledger: SessionLedger) -> None:
        ledger.create(record()).result(LIMIT_S)
        one = prompt()
        ledger.accept("ses_1", one).result(LIMIT_S)
        one.status = "completed"
        one.result = TurnResult(TEXT * 1000, "stop", TokenUsage(3, 4), "m", "n")
        ledger.end(one, 5, 210.0).result(LIMIT_S)
        (found,) = recovered(ledger)
        assert found.prompts[0].result == one.result

    def test_a_deleted_session_leaves_nothing(self, ledger: SessionLedger) -> None:
        for name in ("ses_1", "ses_2"):
            ledger.create(record(name)).result(LIMIT_S)
        ledger.accept("ses_1", prompt(1)).result(LIMIT_S)
        ledger.accept("ses_2", prompt(2)).result(LIMIT_S)
        ledger.delete("ses_1").result(LIMIT_S)
        (found,) = recovered(ledger)
        assert (found.record.id, [each.id for each in found.prompts]) == ("ses_2", ["prm_2"])

    def test_old_turns_are_forgotten_and_those_without_an_end_are_not(
        self, ledger: SessionLedger
    ) -> None:
        ledger.create(record()).result(LIMIT_S)
        last = PRUNE_EVERY * (TURNS_MAX // PRUNE_EVERY + 2)
        for seq in (1, 2, last - 1):
            each = prompt(seq)
            ledger.accept("ses_1", each).result(LIMIT_S)
            if seq == 2:
                each.status, each.result = "completed", TurnResult("x")
                ledger.end(each, 1, 210.0).result(LIMIT_S)
        ledger.accept("ses_1", prompt(last)).result(LIMIT_S)
        (found,) = recovered(ledger)
        assert [each.seq for each in found.prompts] == [1, last - 1, last]

    def test_no_more_is_taken_over_than_a_session_may_hold(self, ledger: SessionLedger) -> None:
        ledger.create(record()).result(LIMIT_S)
        for seq in range(1, 8):
            each = prompt(seq)
            ledger.accept("ses_1", each).result(LIMIT_S)
            if seq < 7:
                each.status, each.result = "completed", TurnResult("x" * 300_000)
                ledger.end(each, seq, 210.0).result(LIMIT_S)
        (found,) = recovered(ledger)
        assert [each.seq for each in found.prompts] == [4, 5, 6, 7]

    def test_what_a_turn_without_an_answer_had_said_is_forgotten(
        self, ledger: SessionLedger
    ) -> None:
        ledger.create(record()).result(LIMIT_S)
        one = prompt()
        ledger.accept("ses_1", one).result(LIMIT_S)
        one.status, one.result = "cancelled", TurnResult(error=TurnError("removed", "x"))
        ledger.end(one, 1, 210.0).result(LIMIT_S)
        (found,) = recovered(ledger)
        assert found.prompts[0].messages == ()

    def test_one_holds_it_at_a_time(self, open_ledger: Callable[[], SessionLedger]) -> None:
        if not self.many:
            pytest.skip("nobody else can reach a database in memory")
        first = open_ledger()
        with pytest.raises(NotAllowed, match="another gateway"):
            open_ledger()
        first.close(LIMIT_S)
        second = open_ledger()
        assert recovered(second) == []
