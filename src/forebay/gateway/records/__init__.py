"""The gateway's records: keys made at run time, usage and history."""
