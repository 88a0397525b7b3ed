"""The task loop, scope tasks, the replay client, rebuilds, dead letters."""
