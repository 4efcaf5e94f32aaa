"""Images for the situations, made once."""

import pytest

from tests.doctor.situations import make_folders


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("situations"))
