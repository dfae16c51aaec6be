"""A certificate authority for a test run, and what it vouches for."""

import ssl
from pathlib import Path

import trustme


class Certificates:
    """An authority, its file, and server contexts signed by it."""

    def __init__(self, directory: Path) -> None:
        self._authority = trustme.CA()
        path = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(str(path))
        self.ca_file = str(path)

    def server_context(self, *names: str) -> ssl.SSLContext:
        """What a server speaks TLS with that proves to be one of these names (or localhost)."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._authority.issue_cert(*(names or ("localhost",))).configure_cert(context)
        return context
