"""The embedded engine: SQLite, one process, no broker."""
