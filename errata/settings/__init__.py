"""Settings, and where a process works."""
