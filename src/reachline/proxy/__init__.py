"""A proxy that forwards by an Envoy document: listener, route, cluster, endpoint. Decides nothing itself: it asks the floors below."""
