"""Scenarios under virtual time: what each way of steering traffic would have done, call by call and limit by limit."""
