"""Deploy a network, change it, and remove it."""
