"""Measures read off `M`; they know nothing of models."""
