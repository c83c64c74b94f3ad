"""What a dispatch costs its user and its class, and how that is corrected afterwards.

Charged at dispatch by the estimate made on arrival, `input_weight * prompt + output_weight *
min(limit, median)`; trued up when the real counts are known; kept when the request returns to its
place, and given back whole when it ends there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import fairness, shares
from forebay.core.fairness import charge_elsewhere
from forebay.core.service_times import TOKENS_MAX

if TYPE_CHECKING:
    from forebay.core.events import Arrived
    from forebay.core.options import Options
    from forebay.core.records import Entry, Lane, Node


class Charging:
    """The three fairness modes as three prices."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._by_tokens = options.fairness == "tokens"
        self._unit = 0.0 if options.fairness == "fifo" else 1.0
        self._weighted = options.class_order == "weighted"
        self._weights = [options.weight_of(rank) for rank in range(len(options.priorities))]
        self.needs_cost = self._by_tokens or self._weighted

    def set_price(self, entry: Entry) -> None:
        """Estimate what an entry will cost in weighted tokens, and what its user will pay."""
        if self.needs_cost:
            options, arrival, times = self._options, entry.arrival, entry.queue.lane.times
            prompt = arrival.prompt_tokens if arrival.prompt_tokens < TOKENS_MAX else TOKENS_MAX
            output = times.output_tokens(options.output_tokens_unmeasured, arrival.output_limit)
            entry.cost = options.input_weight * prompt + options.output_weight * output
        entry.price = entry.cost if self._by_tokens else self._unit

    def charge(self, entry: Entry, node: Node) -> None:
        """Charge the start of an entry on a node: its user once, its class on every node."""
        queue = entry.queue
        if entry.charged_on is None:
            account = entry.account
            amount = entry.charged = entry.price / account.weight
            entry.charged_on, entry.charged_queue, entry.charged_account = node, queue, account
            start = fairness.charge(queue, account, entry, amount)
            if len(entry.user.accounts) > 1:
                charge_elsewhere(entry.user, queue, node, amount)
            node.shares.clocks[queue.rank] = shares.tag_of(node.shares, queue, start)
        if self._weighted and queue.rank < len(self._weights):
            entry.class_charged = entry.cost / self._weights[queue.rank]
            shares.charge_class(node.shares, queue.rank, entry.class_charged)

    def settle(self, entry: Entry, node: Node, prompt_tokens: int, output_tokens: int) -> None:
        """Correct the charge to the real cost; -1 is unknown and leaves the estimate."""
        if not self.needs_cost or output_tokens < 0:
            return
        options = self._options
        prompt = entry.arrival.prompt_tokens if prompt_tokens < 0 else prompt_tokens
        prompt = prompt if prompt < TOKENS_MAX else TOKENS_MAX
        output = output_tokens if output_tokens < TOKENS_MAX else TOKENS_MAX
        real = options.input_weight * prompt + options.output_weight * output
        tokens = real - entry.cost
        if self._by_tokens:
            amount = tokens / entry.charged_account.weight
            fairness.settle(entry.charged_queue, entry.charged_account, entry, amount, node)
        if entry.class_charged:
            rank = entry.queue.rank
            shares.correct_class(node.shares, rank, tokens / self._weights[rank])

    def refund_class(self, entry: Entry, node: Node) -> None:
        """Take note of a return: the class did not use this node after all; the user still owes.

        The user's charge stays while the entry waits again, as if it ran on, and is not made
        again. Giving it back and charging anew would cost the user what the clock moved meanwhile.
        """
        if entry.class_charged:
            shares.correct_class(node.shares, entry.queue.rank, -entry.class_charged)
            entry.class_charged = 0.0

    def refund(self, entry: Entry) -> None:
        """Give the whole charge of a retry back that ends before it runs again."""
        if (node := entry.charged_on) is not None:
            queue, account = entry.charged_queue, entry.charged_account
            fairness.settle(queue, account, entry, -entry.charged, node)


def expected(lane: Lane, arrival: Arrived, options: Options) -> float:
    """Return the tokens of an arrival's prompt, and of its answer as far as that can be told."""
    unmeasured = options.output_tokens_unmeasured
    output = lane.times.output_tokens(unmeasured, arrival.output_limit)
    return float(min(arrival.prompt_tokens, TOKENS_MAX)) + output
