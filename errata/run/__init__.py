"""Running the processes of a network."""
