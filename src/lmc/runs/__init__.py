"""Runs: from settings to a folder that holds all of a training, and back."""
