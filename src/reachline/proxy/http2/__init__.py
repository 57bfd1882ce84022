"""HTTP/2 as bytes in, events out, bytes out: either end of a connection. Pure: no socket, no clock."""
