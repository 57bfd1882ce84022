"""WAIT: the lowest floor that may touch sockets, clocks and the kernel."""
