"""Graphs: what they hold, where they come from, and batches of them."""
