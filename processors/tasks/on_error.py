"""What happens to tuples that boxes refuse: they become dead letters, or the task stops."""

DEAD_LETTER, STOP = ON_ERROR = "dead-letter", "stop"
