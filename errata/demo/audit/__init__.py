"""A stranger's audit: recomputes the demo's results from the user's topic, with code of its own."""
