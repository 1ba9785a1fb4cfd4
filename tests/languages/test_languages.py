import os

import pytest

from kernelevolve import errors, languages
from kernelevolve.testing import villains


def test_languages_are_told_apart_by_their_source():
    assert languages.detect(villains.good_source()) == "cpp"
    assert languages.detect("import torch\nclass ModelNew(torch.nn.Module): pass") == "pytorch"
    assert languages.detect("") == "pytorch"


def test_an_unknown_language_names_the_known_ones():
    with pytest.raises(errors.UnknownNameError, match="cpp"):
        languages.get("fortran")


def test_a_missing_compiler_is_named_with_the_package_to_install(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(errors.MissingDependencyError, match=r"apt-get install g\+\+"):
        languages.get("cpp").toolchain()


def test_the_toolchain_says_its_version():
    assert languages.get("cpp").toolchain()["version"]
    assert languages.get("pytorch").toolchain()["torch"]


def test_a_loaded_module_builds_into_the_folder_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv(languages.BUILD_DIR, "")
    path = tmp_path / "candidate_under_test.py"
    path.write_text("import os, pathlib\nplace = os.environ['KERNELEVOLVE_BUILD_DIR']\n"
                    "(pathlib.Path(place) / 'made').touch()\n")
    module = languages.get("cpp").load(path, tmp_path / "build")
    assert module.place == os.environ[languages.BUILD_DIR] == str(tmp_path / "build")
    assert (tmp_path / "build" / "made").exists()
