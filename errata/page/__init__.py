"""The page: a network in the browser, live, with what it was corrected in and why."""

PORT = 9470
"""Its usual port."""
