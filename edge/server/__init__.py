"""The HTTP side: connections, requests, and which handler answers which address."""
