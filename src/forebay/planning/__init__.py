"""What if: recorded traffic through the real scheduler, in virtual time, with other nodes or rules.

Everything but reading the file is pure and seeded: the same traffic and the same plan give the same
figures. What a replay can know and what it cannot is in docs/planning.md.
"""
