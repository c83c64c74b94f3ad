"""FAULTS.md, row by row: each test's name has the number of the row that it shows."""
