"""Gradient estimators: every way to the full-batch gradient from less than the full batch, one file each."""
