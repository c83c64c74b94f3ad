"""Which worker leads: decided by the parent, which knows at once when one has died.

The one that joined first leads until it dies, leaves or steps down. So there are never two, and
nobody has to wait for a lease to run out. Each leadership has its own number, the epoch.
"""

from __future__ import annotations

from forebay.coordination.workers.messages import GroupState


class Election:
    """The members of the group in the order in which they joined; no I/O."""

    def __init__(self) -> None:
        self._members: dict[str, tuple[bytes, bool]] = {}  # about, may lead
        self._epoch = 0
        self._leader = ""
        self.is_over = False
        """Whether nobody is chosen any more: all are about to stop."""

    def join(self, member: str, about: bytes, *, may_lead: bool) -> None:
        """Take a member in, or change what is known of it."""
        self._members[member] = about, may_lead
        if member == self._leader and not may_lead:
            self._leader = ""
        self._elect()

    def leave(self, member: str) -> None:
        """Forget a member that has died or stopped."""
        self._members.pop(member, None)
        if member == self._leader:
            self._leader = ""
            self._elect()

    def step_down(self, member: str, epoch: int) -> None:
        """Begin another epoch: the leader of this one does not lead any more."""
        if (member, epoch) == (self._leader, self._epoch):
            self._leader = ""
            self._elect()

    def state(self) -> GroupState:
        members = tuple((member, about) for member, (about, _) in self._members.items())
        return GroupState(self._epoch, self._leader, members)

    def _elect(self) -> None:
        if self._leader or self.is_over:
            return
        for member, (_, may_lead) in self._members.items():
            if may_lead:
                self._epoch += 1
                self._leader = member
                return
