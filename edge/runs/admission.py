"""Lets runs in: at once, after a wait in the queue, or not at all."""

from contextlib import AbstractAsyncContextManager


class Admission:
    """The gate in front of every run."""

    def admit(self, key: str, key_limit: int = 0) -> AbstractAsyncContextManager[None]:
        """``async with admission.admit(name, limit):`` holds a place for the body's time.

        Args:
            key: name of the client's key, empty where the gateway is open.
            key_limit: how many runs of this key may be active, 0 for no limit of its own.

        Raises:
            RateLimited: the key's own share is used up.
            Overloaded: the gateway is full, or draining.
        """
        raise NotImplementedError

    def drain(self) -> None:
        """Refuse new runs from now on."""
        raise NotImplementedError
