"""Doors: documents in their own dialects become settings and rules; snapshots become documents. Pure functions."""
