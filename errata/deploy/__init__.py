"""Deploying a network, changing it, giving it up."""
