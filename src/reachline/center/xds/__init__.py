"""The center as a control plane: what Envoys, gRPC clients and our own proxies are told, and what they say of it."""
