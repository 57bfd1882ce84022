"""Faces for people and scripts: each command is one module with a `command` (or, for a group, an `app`)."""
