"""Models that hand over their heads."""
