"""REMEMBER: the journal of evidence and decisions, its recovery, its replay, and what it remembers of one line."""
