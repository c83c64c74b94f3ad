"""Claims, heartbeats and orphans: whatever the order in which the store's answers arrive."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import pytest

from forebay.errors import StoreFailed
from forebay.jobs.claims import ClaimSet
from forebay.jobs.job import Change, StoredJob

if TYPE_CHECKING:
    from forebay.jobs.claims import ClaimedJob
    from forebay.jobs.job import Claim, Status
    from forebay.jobs.store.job_store import JobStore


def job(id_: int, fence: int = 1) -> StoredJob:
    given = dict.fromkeys(StoredJob.__struct_fields__)
    return StoredJob(**cast("Any", given | {"id": id_, "fence": fence, "status": "running"}))


class SlowStore:
    """A store whose answers the test gives, in any order."""

    def __init__(self) -> None:
        self.claims: list[Future[list[StoredJob]]] = []
        self.beats: list[Future[set[Claim]]] = []
        self.given_back: list[int] = []
        self.released: list[set[Claim]] = []

    def claim(self, *_: object, **_options: object) -> Future[list[StoredJob]]:
        self.claims.append(Future())
        return self.claims[-1]

    def heartbeat(self, *_: object) -> Future[set[Claim]]:
        self.beats.append(Future())
        return self.beats[-1]

    def give_back(self, returned: StoredJob, *, tried: bool) -> None:
        assert not tried
        self.given_back.append(returned.id)

    def release(self, worker: str, claims: set[Claim]) -> None:
        assert worker == "w1"
        self.released.append(claims)


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def claims(store: SlowStore) -> ClaimSet:
    return ClaimSet(cast("JobStore", store), "w1", 30.0)


def claimed(claims: ClaimSet, store: SlowStore, taken: StoredJob) -> ClaimedJob:
    answer = claims.claim("letter")
    store.claims[-1].set_result([taken])
    found = answer.result(0)
    assert found is not None
    return found


def change(id_: int, status: Status, before: Status = "running", fence: int = 1) -> Change:
    return Change(id_, "letter", "letter", status, before, fence=fence)


# -- revoked


def test_the_first_reason_counts_and_interrupts_once(claims: ClaimSet, store: SlowStore) -> None:
    one, calls = claimed(claims, store, job(1)), []
    one.on_revoke(lambda: calls.append(one.revoked))
    claims.take_in(change(1, "cancelled"))
    claims.stop()
    assert calls == ["was cancelled"]


def test_who_comes_late_is_interrupted_at_once(claims: ClaimSet, store: SlowStore) -> None:
    one, calls = claimed(claims, store, job(1)), []
    one.revoke("was stopped")
    one.on_revoke(lambda: calls.append(one.revoked))
    assert calls == ["was stopped"]


@pytest.mark.parametrize(
    ("heard", "reason"),
    [
        (change(1, "cancelled"), "was cancelled"),
        (change(1, "queued"), ""),  # its lease expired: the heartbeat tells
        (change(1, "failed"), "was taken over"),
        (change(1, "running"), ""),  # a stage
        (change(1, "completed", fence=0), ""),  # our own word
        (change(1, "cancelled", fence=2), ""),  # a later claim
        (change(1, "queued", before="failed"), ""),
    ],
)
def test_what_others_did_to_a_running_job_revokes_it(
    claims: ClaimSet, store: SlowStore, heard: Change, reason: str
) -> None:
    one = claimed(claims, store, job(1))
    claims.take_in(heard)
    assert one.revoked == reason


def test_a_cancellation_that_overtakes_the_answer_to_its_claim_is_kept(
    claims: ClaimSet, store: SlowStore
) -> None:
    answer = claims.claim("letter")
    claims.take_in(change(1, "cancelled"))
    other = claimed(claims, store, job(2))  # a claim that was asked for later says nothing of it
    store.claims[0].set_result([job(1)])
    first = answer.result(0)
    assert first is not None
    assert (first.revoked, other.revoked) == ("was cancelled", "")


def test_a_claim_that_arrives_after_the_stop_is_revoked(claims: ClaimSet, store: SlowStore) -> None:
    answer = claims.claim("letter")
    claims.stop()
    store.claims[0].set_result([job(1)])
    late = answer.result(0)
    assert late is not None
    assert late.revoked == "was stopped"


# -- abandoned


def test_an_abandoned_claim_is_not_made_if_it_has_not_begun(
    claims: ClaimSet, store: SlowStore
) -> None:
    assert claims.claim("letter").cancel()
    assert store.claims[0].cancelled()
    assert len(claims) == 0


def test_what_an_abandoned_claim_brings_goes_back(claims: ClaimSet, store: SlowStore) -> None:
    answer = claims.claim("letter")
    store.claims[0].set_running_or_notify_cancel()
    assert answer.cancel()
    store.claims[0].set_result([job(1)])
    assert store.given_back == [1]
    assert len(claims) == 0


# -- heartbeats and orphans


def test_without_claims_and_doubts_nothing_is_asked(claims: ClaimSet, store: SlowStore) -> None:
    claims.beat()
    assert store.beats == []


def test_a_heartbeat_that_does_not_return_a_job_revokes_it(
    claims: ClaimSet, store: SlowStore
) -> None:
    first, second = claimed(claims, store, job(1)), claimed(claims, store, job(2, fence=3))
    claims.beat()
    store.beats[0].set_result({(1, 1), (2, 4)})
    assert (first.revoked, second.revoked) == ("", "was taken over")


def test_one_heartbeat_at_a_time_is_asked_for(claims: ClaimSet, store: SlowStore) -> None:
    claimed(claims, store, job(1))
    claims.beat()
    claims.beat()
    assert len(store.beats) == 1
    store.beats[0].set_exception(StoreFailed("away"))
    claims.beat()
    assert len(store.beats) == 2


def test_a_claim_whose_answer_was_lost_is_requeued(claims: ClaimSet, store: SlowStore) -> None:
    answer = claims.claim("letter")
    store.claims[0].set_exception(StoreFailed("the connection is gone"))
    assert isinstance(answer.exception(0), StoreFailed)
    claims.beat()  # though nothing is held
    store.beats[0].set_result({(1, 1)})
    assert store.released == [{(1, 1)}]
    claims.beat()
    store.beats[1].set_result(set())
    claims.beat()
    assert len(store.beats) == 2  # no doubt is left


def test_a_doubt_that_arises_during_a_heartbeat_is_cleared_by_the_next(
    claims: ClaimSet, store: SlowStore
) -> None:
    one = claimed(claims, store, job(1))
    claims.beat()
    claims.claim("letter")
    store.claims[1].set_exception(StoreFailed("the connection is gone"))
    claims.drop(one)
    store.beats[0].set_result({(1, 1)})
    claims.beat()
    store.beats[1].set_result({(2, 1)})
    assert store.released == [{(2, 1)}]


def test_what_a_claim_on_its_way_may_explain_is_no_orphan(
    claims: ClaimSet, store: SlowStore
) -> None:
    claimed(claims, store, job(1))
    answer = claims.claim("letter")
    claims.beat()
    store.beats[0].set_result({(1, 1), (2, 1)})
    store.claims[1].set_result([job(2)])  # committed before the beat, answered after it
    assert answer.result(0) is not None
    claims.beat()
    store.beats[1].set_result({(1, 1), (2, 1)})
    assert store.released == []


def test_an_orphan_is_found_however_many_claims_are_always_on_their_way(
    claims: ClaimSet, store: SlowStore
) -> None:
    claimed(claims, store, job(1))
    claims.claim("letter")
    claims.beat()
    store.beats[0].set_result({(1, 1), (2, 1)})
    claims.claim("letter")
    store.claims[1].set_result([])  # it did not bring the unknown job, and none before it did
    claims.beat()
    store.beats[1].set_result({(1, 1), (2, 1)})
    assert store.released == [{(2, 1)}]


def test_a_job_that_ended_during_the_heartbeat_is_no_orphan(
    claims: ClaimSet, store: SlowStore
) -> None:
    one = claimed(claims, store, job(1))
    claims.beat()
    claims.drop(one)
    store.beats[0].set_result({(1, 1)})
    assert store.released == []
