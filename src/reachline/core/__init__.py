"""DECIDE: pure, integer rules. No socket, task, clock, thread, logging or chance of its own lives below this line."""
