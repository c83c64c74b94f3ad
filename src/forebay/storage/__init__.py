"""Databases: group commit by one writer thread, migrations, notifications, file locks."""
