"""Compensating aggregate functions: what enters a window's result can leave it again."""
