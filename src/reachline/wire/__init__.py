"""Bytes to values and back, and protocols as state machines. Pure: nothing here waits."""
