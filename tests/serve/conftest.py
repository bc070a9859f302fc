"""The servers and models that several files of this folder ask; other files start servers of their own."""

import pytest
from support.serving import models_and_keys, serving, with_a_key

from seq2seq import Translator


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    return models_and_keys(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="package")
def server(folder):
    with serving(folder / "one", folder / "two", folder / "labels", "--deadline", "20") as served:
        yield served


@pytest.fixture(scope="package")
def alone(folder):
    """A server of one direction that wants a key."""
    with with_a_key(folder) as served:
        yield served


@pytest.fixture(scope="package")
def translator(folder):
    return Translator.load(folder / "one", threads=1)
