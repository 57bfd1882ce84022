"""Adapters for other people's clients, each in a module of its library's name, which it imports: import what you use.

All are thin over `exchange` (which line, how often, how it ended) and `pools` (connections by line).
"""
