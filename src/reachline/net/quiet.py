"""gRPC, imported in one place: what it does at its import, and what it prints, is decided here."""

from __future__ import annotations

import os

# The C core prints its own lines on stderr ("Failed to add port…") beside the errors we map; read once, at import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

__all__ = ["grpc"]
