"""Envelopes: how records of users' topics encode revisions."""
