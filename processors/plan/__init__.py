"""Plans: what runs, where, and what is deployed."""
