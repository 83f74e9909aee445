"""Models: what one is, and the built-in ones."""
