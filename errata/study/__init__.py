"""`errata study`: what revisions cost in each mode, over windows, overlaps, rates and chains."""
