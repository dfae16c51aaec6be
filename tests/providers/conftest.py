"""Fixtures of the provider tests."""

import pytest

from tests.fakes.certificates import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority that lasts as long as the test run."""
    return Certificates(tmp_path_factory.mktemp("certificates"))
