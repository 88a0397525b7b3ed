"""The audit: recomputes the demo's results from the user's topic; shares no code with Errata."""
