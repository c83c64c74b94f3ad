"""The room in the key-value cache of transformers' continuous batching, in either of its layouts.

Up to 5.17 all layers share one pool of blocks. Since 5.18 the cache is made of sectors; each kind
of attention takes whole sectors and cuts them into blocks of its own size. A model with one kind
of attention is counted in blocks, one with several in sectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class KvCache(Protocol):
    """What a scheduler asks of a cache; sizes are in its own unit."""

    total: int
    read_limit: int | None
    """Most tokens that a step reads of one request; None: all of them."""

    fast_decode_max: int
    """Requests shorter than this may decode without an index of what they read."""

    def size_of(self, tokens: int) -> int:
        """Return the room that a request of so many tokens takes."""

    def tokens_in(self, size: int) -> int:
        """Return how many tokens of one request surely fit into some room."""

    def used(self) -> int:
        """Return the room that requests hold; what is kept for later prompts only is free."""

    def free(self, owners: Iterable[tuple[str, int]]) -> int:
        """Return what is free, less what requests may still need; each with its tokens in all."""

    def reclaim(self) -> None:
        """Make what ended requests have left free for every kind of attention."""

    def store(self, state: Any, tokens: int) -> bool:
        """Take the room for the next tokens of a request, or nothing.

        One under way that gets none is noted with the engine, which may put others out then.
        """

    def completed(self, state: Any, tokens: int) -> Any:
        """Return the blocks that these tokens complete, in the form that the engine takes."""


def kv_cache(scheduler: Any) -> KvCache:
    """Return the cache of a scheduler of transformers."""
    has_sectors = hasattr(scheduler.cache, "cache_allocators")
    return SectorCache(scheduler) if has_sectors else BlockCache(scheduler)


class BlockCache:
    """One pool of blocks for all layers: transformers 5.17."""

    def __init__(self, scheduler: Any) -> None:
        self._cache = cache = scheduler.cache
        self._take = scheduler._allocate_blocks_if_needed
        self._groups = cache.num_full_attention_groups + cache.num_sliding_attention_groups
        self.total: int = cache.get_num_free_blocks()
        self.read_limit: int | None = scheduler.read_cache_limit
        self.fast_decode_max: int = scheduler.max_decode_fast_path_length

    def size_of(self, tokens: int) -> int:
        return int(self._cache.blocks_needed(tokens // self._cache.block_size + 1, 0))

    def tokens_in(self, size: int) -> int:
        return int(size * self._cache.block_size // self._groups)

    def used(self) -> int:
        return self.total - int(self._cache.get_num_free_blocks())

    def free(self, owners: Iterable[tuple[str, int]]) -> int:
        in_use = self._cache.blocks_in_use
        owed: int = sum(max(0, self.size_of(tokens) - in_use(id)) for id, tokens in owners)
        return int(self._cache.get_num_free_blocks()) - owed

    def reclaim(self) -> None:
        pass  # there is one pool

    def store(self, state: Any, tokens: int) -> bool:
        return bool(self._take(state, tokens))

    def completed(self, state: Any, tokens: int) -> int:
        if not self._cache.allow_block_sharing:
            return 0
        size = self._cache.block_size
        return int((state.current_len() % size + tokens) // size)


class SectorCache:
    """Sectors that become blocks of one kind of attention: transformers 5.18 and later."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._cache = scheduler, scheduler.cache
        cache, self._pool = self._cache, self._cache.pool
        self._allocators = tuple(cache.cache_allocators.values())
        self._is_one_kind = len(self._allocators) == 1
        per_sector = self._allocators[0].blocks_per_sector if self._is_one_kind else 1
        self._units_per_sector: int = per_sector
        self.total: int = cache.num_sectors * per_sector
        self.read_limit: int | None = cache.read_cache_limit
        self.fast_decode_max: int = cache.max_decode_fast_path_length

    def size_of(self, tokens: int) -> int:
        return sum(
            self._units(allocator, allocator.needs_new_blocks("", 0, tokens))
            for allocator in self._allocators
        )

    def tokens_in(self, size: int) -> int:
        per_token = sum(
            self._units_per_sector / (allocator.blocks_per_sector * allocator.tokens_per_page)
            for allocator in self._allocators
        )
        return int(size / per_token)

    def used(self) -> int:
        cache = self._cache
        free_bytes: int = int(cache.compute_free_capacity(relative=False))
        free_bytes += sum(
            len(allocator.ledger.cached_blocks) * allocator.bytes_per_block
            for allocator in self._allocators
        )
        unit_bytes: int = cache.bytes_per_sector // self._units_per_sector
        return self.total - free_bytes // unit_bytes

    def free(self, owners: Iterable[tuple[str, int]]) -> int:
        owners = tuple(owners)
        free: int = self._pool.num_free_sectors * self._units_per_sector
        for allocator in self._allocators:
            owed = sum(allocator.needs_new_blocks(id, 0, tokens) for id, tokens in owners)
            own = self._pool.count_free_blocks(allocator.index) + len(
                allocator.ledger.cached_blocks
            )
            # Blocks left over in the sectors of one kind are of no use to another.
            free -= owed - own if self._is_one_kind else self._units(allocator, owed - own)
        return free

    def _units(self, allocator: Any, blocks: int) -> int:
        if self._is_one_kind:
            return blocks
        return max(0, -(-blocks // int(allocator.blocks_per_sector)))

    def reclaim(self) -> None:
        self._pool.try_to_free_sectors()

    def store(self, state: Any, tokens: int) -> bool:
        if self._cache.can_store_request_tokens(state, tokens):
            return True
        self._cache.evict_cached_blocks()  # kept for prompts to come: those under way go first
        self.reclaim()
        is_stored = bool(self._cache.can_store_request_tokens(state, tokens))
        if not is_stored and state.request_id in self._scheduler.active_requests:
            self._scheduler.starved_requests.append((state, tokens))
        return is_stored

    def completed(self, state: Any, tokens: int) -> Any:
        return self._cache.count_new_complete_blocks(state, tokens)
