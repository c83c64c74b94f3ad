"""The dashboard: its time line, its problems, its troubles."""
