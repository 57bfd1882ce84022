"""Reachline itself as a contender: production's judge, tempo, windows, picker and breakers, driven by virtual time."""
