"""Clusters, and what makes the batches of an epoch."""
