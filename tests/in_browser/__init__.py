"""Tests that open pages in a browser. A package of its own, so that one browser serves all of them and stops after them."""
