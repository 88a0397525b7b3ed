"""Progress: reports read and validated, frontiers, watermarks."""
