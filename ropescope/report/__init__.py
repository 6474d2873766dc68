"""Charts and pages, from results alone."""
