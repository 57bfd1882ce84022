"""The connection path of an Xray document: its inbounds served, each connection routed by its rules and passed on."""
