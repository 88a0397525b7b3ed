"""Progress: which times may still appear where (Timely Dataflow)."""
