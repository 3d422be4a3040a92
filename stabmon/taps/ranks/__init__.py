"""Many processes: what each reads, and how it becomes one row."""
