"""Training small models, and watching their heads while they learn."""
