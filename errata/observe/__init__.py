"""What processes tell of themselves: progress, health, metrics."""
