"""Units of work on a real Ray cluster of several nodes, some of which are lost, give what they give here."""
