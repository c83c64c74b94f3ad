"""One budget for the bytes of all bodies: never passed, shared between owners, given back."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.wire.budget import READ_BYTES, SERVED_AT_ONCE, Budget, Charge

LIMIT = 64 * READ_BYTES


class Upload:
    """Waits for room, and remembers what it got."""

    def __init__(self, owner: str, size: int) -> None:
        self.owner = owner
        self.size = size
        self.charge: Charge | None = None

    def has_room(self, charge: Charge) -> None:
        assert self.charge is None
        self.charge = charge


def arrive(budget: Budget, owner: str, size: int) -> Upload:
    upload = Upload(owner, size)
    upload.charge = budget.take(owner, size)
    if upload.charge is None:
        assert budget.wait(upload, owner, size, 0)
    return upload


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_is_given_back_goes_to_who_waits_the_smallest_of_an_owner_first() -> None:
    budget = Budget(LIMIT)
    first = arrive(budget, "a", LIMIT // 2)
    big, small = arrive(budget, "a", LIMIT // 2), arrive(budget, "a", LIMIT // 3)
    await turn()
    assert (big.charge, small.charge) == (None, None)
    assert first.charge is not None
    first.charge.release()
    await turn()
    assert small.charge is not None
    assert big.charge is None  # together they would leave too little for others
    small.charge.release()
    await turn()
    assert big.charge is not None


async def test_one_owner_leaves_a_quarter_for_others() -> None:
    budget = Budget(LIMIT)
    uploads = [arrive(budget, "greedy", LIMIT // 16) for _ in range(40)]
    assert sum(u.charge is not None for u in uploads) == 12
    other = arrive(budget, "other", LIMIT // 8)
    await turn()
    assert other.charge is not None


async def test_while_others_want_some_an_owner_gets_a_quarter_and_they_take_turns() -> None:
    budget = Budget(LIMIT)
    blocker = budget.take_whole("x", LIMIT - LIMIT // 8)
    uploads = {o: [arrive(budget, o, LIMIT // 16) for _ in range(20)] for o in ("a", "b", "c")}
    await turn()
    assert all(u.charge is None for line in uploads.values() for u in line)
    assert blocker is not None
    blocker.release()
    await turn()
    held = {o: sum(u.charge is not None for u in line) for o, line in uploads.items()}
    assert held == {"a": 4, "b": 4, "c": 4}


async def test_small_bodies_do_not_stand_behind_large_ones() -> None:
    budget = Budget(LIMIT)
    blocker = arrive(budget, "a", LIMIT * 3 // 4)
    waits = arrive(budget, "a", LIMIT // 2)
    assert blocker.charge is not None
    assert waits.charge is None
    assert arrive(budget, "a", LIMIT // 64).charge is not None
    assert arrive(budget, "b", LIMIT // 64).charge is not None


async def test_a_body_larger_than_the_budget_is_let_in_alone() -> None:
    budget = Budget(1000)
    assert budget.take("a", 5000) is not None
    assert budget.take("b", 5000) is None


async def test_a_request_that_came_in_one_read_is_refused_when_all_is_spent() -> None:
    budget = Budget(LIMIT)
    charges = [budget.take_whole("a", READ_BYTES) for _ in range(100)]
    assert sum(c is not None for c in charges) == 56  # seven eighths
    assert budget.take_whole("b", READ_BYTES) is not None


async def test_owners_beyond_their_share_do_not_keep_each_other_out() -> None:
    budget = Budget(LIMIT)
    for owner in "ab":
        assert budget.take(owner, LIMIT // 4) is not None
    blockers = [budget.take(owner, LIMIT // 6) for owner in "cd"]
    waiting = [arrive(budget, owner, LIMIT // 16) for owner in "ab"]
    assert [upload.charge for upload in waiting] == [None, None]
    for blocker in blockers:
        assert blocker is not None
        blocker.release()
    await turn()
    assert any(upload.charge is not None for upload in waiting)


async def test_only_some_are_let_in_in_one_turn() -> None:
    budget = Budget(LIMIT)
    first = arrive(budget, "a", LIMIT)
    uploads = [arrive(budget, f"user{i}", LIMIT // 1000) for i in range(3 * SERVED_AT_ONCE)]
    assert first.charge is not None
    first.charge.release()
    served = []
    for _ in range(5):
        await asyncio.sleep(0)
        served.append(sum(upload.charge is not None for upload in uploads))
    assert served[0] <= SERVED_AT_ONCE
    assert served[-1] == len(uploads)


async def test_who_leaves_the_line_gets_nothing_and_its_bytes_are_not_counted() -> None:
    budget = Budget(LIMIT)
    first = arrive(budget, "a", LIMIT // 2)
    gone = Upload("a", LIMIT // 2)
    assert budget.wait(gone, "a", gone.size, 77)
    assert budget.parked_bytes == 77
    budget.forget(gone)
    budget.forget(gone)
    assert first.charge is not None
    first.charge.release()
    first.charge.release()
    await turn()
    assert gone.charge is None
    assert (budget.used_bytes, budget.parked_bytes, budget.waiting) == (0, 0, 0)


async def test_a_waiter_that_fails_gives_its_bytes_back() -> None:
    class Broken(Upload):
        def has_room(self, charge: Charge) -> None:
            raise RuntimeError("a bug")

    budget = Budget(1000)
    first = arrive(budget, "a", 900)
    broken = Broken("b", 900)
    assert budget.wait(broken, "b", 900, 0)
    assert first.charge is not None
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    first.charge.release()
    await turn()
    assert budget.used_bytes == 0


async def test_a_chunked_body_gives_back_what_it_did_not_need() -> None:
    budget = Budget(LIMIT)
    charge = budget.take("a", LIMIT // 2)
    assert charge is not None
    charge.shrink(10)
    assert budget.used_bytes == 10
    charge.shrink(20)
    charge.release()
    charge.shrink(0)
    assert budget.used_bytes == 0


STEP = st.tuples(
    st.sampled_from(["arrive", "whole", "release", "leave", "turn"]),
    st.integers(0, 3),
    st.integers(1, LIMIT // 3),
)


class Day:
    """A budget and all that holds some of it."""

    def __init__(self) -> None:
        self.budget = Budget(LIMIT)
        self.uploads: list[Upload] = []
        self.charges: list[Charge] = []

    async def step(self, what: str, owner: str, size: int) -> None:
        if what == "arrive":
            self.uploads.append(arrive(self.budget, owner, size))
        elif what == "whole":
            charge = self.budget.take_whole(owner, size % READ_BYTES)
            self.charges += [charge] if charge is not None else []
        elif what == "release" and self.charges:
            self.charges.pop(size % len(self.charges)).release()
        elif what == "leave" and self.uploads:
            self.leave(self.uploads[size % len(self.uploads)])
        else:
            await turn()

    def leave(self, upload: Upload) -> None:
        self.uploads.remove(upload)
        self.budget.forget(upload)
        if upload.charge is not None:
            upload.charge.release()

    def check(self) -> None:
        held = [u.charge for u in self.uploads if u.charge is not None] + self.charges
        assert self.budget.used_bytes == sum(charge.size_bytes for charge in held)
        assert self.budget.used_bytes + self.budget.parked_bytes <= LIMIT

    async def end(self) -> None:
        for charge in self.charges:
            charge.release()
        while self.uploads:
            await turn()
            served = [u for u in self.uploads if u.charge is not None]
            assert served  # somebody can always go on
            for upload in served:
                self.leave(upload)
        assert (self.budget.used_bytes, self.budget.waiting) == (0, 0)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_the_budget_is_never_passed_and_everyone_gets_in_at_last(
    steps: list[tuple[str, int, int]],
) -> None:
    async def run() -> None:
        day = Day()
        for what, owner, size in steps:
            await day.step(what, str(owner), size)
            day.check()
        await day.end()

    asyncio.run(run())
