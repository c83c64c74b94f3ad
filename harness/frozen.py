"""Imported last by the process that forks commands: exempts all that it has from collection.

A gateway collects garbage when it starts. In a forked one that would look at, and so copy, all that
was imported before: most of the CPU time of its start.
"""

import gc

gc.collect()
gc.freeze()
