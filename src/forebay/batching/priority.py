"""The four priorities of a request in the library queue."""

from enum import IntEnum


class Priority(IntEnum):
    """How urgent a request is. A higher one is always served first; equals in order of arrival.

    Strictly so: as long as higher ones keep coming, lower ones wait.

    >>> Priority.URGENT > Priority.HIGH > Priority.NORMAL > Priority.LOW
    True
    """

    LOW = 0
    NORMAL = 1
    HIGH = 2
    URGENT = 3
