import pytest

from kernelevolve import errors
from kernelevolve.evaluation import isolation
from kernelevolve.evaluation.isolation import Isolation


def test_an_unknown_level_is_refused():
    with pytest.raises(errors.UnknownNameError, match="process"):
        isolation.get("submarine")


def test_an_unavailable_level_is_refused_and_no_weaker_one_taken(monkeypatch):
    class Vault(Isolation):
        name = "vault"

        def available(self):
            return False, "no door"

        def wrap(self, arguments):
            raise AssertionError("never reached")

    monkeypatch.setitem(isolation.LEVELS, "vault", Vault())
    with pytest.raises(errors.SettingError, match="no door"):
        isolation.get("vault")
