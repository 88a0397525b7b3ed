"""Which boxes of a scope run in an epoch, and in which order (Streamulus)."""
