"""What processes report about themselves: progress, health, metrics."""
