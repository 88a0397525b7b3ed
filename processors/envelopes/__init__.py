"""Envelopes: how a record of a user's topic says what was revised."""
