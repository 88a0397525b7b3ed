"""Settings: the cluster, the registry, local state and logging of a process."""
