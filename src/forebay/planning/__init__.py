"""Capacity planning: recorded traffic through the real scheduler, in virtual time.

Everything but reading the file is pure and seeded: the same traffic and the same plan give the same
figures. What a replay can know and what it cannot is in docs/planning.md.
"""
