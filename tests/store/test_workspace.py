"""Workspaces, study names, artifacts, and the log of a study."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelevolve import errors
from kernelevolve.records import Status, to_dict
from kernelevolve.store import Artifacts, Workspace
from kernelevolve.store.disk import FileLock
from kernelevolve.store.workspace import study_folder
from kernelevolve.study import Study
from tests import fakes

HEADER = {"problem": to_dict(fakes.PROBLEM), "platform": "cpu", "seed": 0}


NAMES = ["../../x", "CON", "é 🚀", "a'; DROP TABLE nodes; --", "x" * 200, ".", "/etc/passwd", "a\\b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_data_and_never_a_path(tmp_path, name: str) -> None:
    workspace = Workspace(tmp_path / "w")
    workspace.create_study({"name": name, **HEADER}).close()
    assert workspace.studies() == [name]
    assert workspace.study(name).name == name
    assert [p.name for p in workspace.journal_path.iterdir()] == [study_folder(name)]
    assert [p.name for p in tmp_path.iterdir()] == ["w"]
    assert workspace.sql("SELECT study FROM studies")["study"].tolist() == [name]


def test_names_that_differ_by_case_are_two_studies(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    for name in ("Study", "study"):
        workspace.create_study({"name": name, **HEADER}).close()
    assert sorted(workspace.studies()) == ["Study", "study"]
    folders = {p.name.lower() for p in workspace.journal_path.iterdir()}
    assert len(folders) == 2


@pytest.mark.parametrize(("name", "rule"), [
    ("", "at least one visible character"), ("  ", "at least one visible character"), ("a\0b", "no control characters"),
    ("a\nb", "no control characters"), ("x" * 201, "at most 200 characters; got 201"), ("\ud800", "lone surrogates"),
])
def test_a_refusal_says_which_rule_a_name_breaks(tmp_path, name: str, rule: str) -> None:
    with pytest.raises(errors.StudyError, match=rule):
        Workspace(tmp_path).create_study({"name": name, **HEADER})


def test_a_taken_name_is_refused_with_what_to_do(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    workspace.create_study({"name": "a", **HEADER}).close()
    with pytest.raises(errors.StudyError, match=r"go on with Study.resume\('a'\), or choose another name"):
        workspace.create_study({"name": "a", **HEADER})


def test_an_unknown_study_is_refused_with_the_known_ones(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    workspace.create_study({"name": "a", **HEADER}).close()
    with pytest.raises(errors.StudyError, match=r"no study named 'b' .* there are 1: 'a'"):
        workspace.study("b")


def test_reserved_names_are_never_given_twice(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    assert [workspace.reserve_name("rms") for _ in range(3)] == ["rms-1", "rms-2", "rms-3"]
    assert workspace.studies() == []


def test_one_process_at_a_time_leads_a_study(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    writer = workspace.create_study({"name": "a", **HEADER})
    with pytest.raises(errors.StoreError, match="is open in this process"):
        workspace.open_study("a")
    workspace.open_study("a", lead=False).append("act", {"act": "hint", "number": 0, "text": "t"})
    writer.close()
    workspace.open_study("a").close()


def test_a_dead_leader_holds_nothing(tmp_path) -> None:
    pid = os.fork()
    if pid == 0:
        FileLock(tmp_path / "lock").acquire(1)
        os._exit(0)
    os.waitpid(pid, 0)
    lock = FileLock(tmp_path / "lock")
    assert lock.holder() == pid
    assert lock.acquire(0)


def test_the_folder_comes_from_the_argument_then_the_variable_then_the_default(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELEVOLVE_WORKSPACE", raising=False)
    assert Workspace().path == tmp_path / "kernelevolve-workspace"
    monkeypatch.setenv("KERNELEVOLVE_WORKSPACE", str(tmp_path / "env"))
    assert Workspace().path == tmp_path / "env"
    assert Workspace(tmp_path / "x").path == tmp_path / "x"
    assert Workspace(Workspace(tmp_path / "x")).path == tmp_path / "x"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_that_says_what_to_do(tmp_path) -> None:
    with pytest.raises(errors.StoreError, match=r"choose one with workspace=… or the variable KERNELEVOLVE_WORKSPACE"):
        Workspace("/sys/kernelevolve").create_study({"name": "a", **HEADER})
    (tmp_path / "file").touch()
    with pytest.raises(errors.StoreError, match=r"a file where a folder was expected|choose another workspace"):
        Workspace(tmp_path / "file").create_study({"name": "a", **HEADER})


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_comes_back_from_its_hash(tmp_path_factory, text: str) -> None:
    artifacts = Artifacts(tmp_path_factory.getbasetemp() / "artifacts")
    assert artifacts.get(artifacts.put(text)) == text


def test_a_damaged_artifact_is_found(tmp_path) -> None:
    artifacts = Artifacts(tmp_path)
    digest = artifacts.put("x = 1\n")
    path = tmp_path / "sha256" / digest[:2] / digest
    path.write_text("x = 2\n")
    with pytest.raises(errors.StoreError, match="is damaged"):
        artifacts.get(digest)
    path.unlink()
    with pytest.raises(errors.StoreError, match="cannot read"):
        artifacts.get(digest)


def test_a_study_comes_back_whole(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(8)
        study.pin(study.best.number)
        study.hint(0, "say <always>")
    log = study.workspace.study("s")
    assert list(log.nodes.values()) == study.tree.nodes
    assert log.problem == fakes.PROBLEM
    assert log.lost == ()
    assert log.state_damage() == ""
    assert [a.name for a in log.acts] == ["pin", "hint"]
    assert log.environments == {"env": {"id": "env", "cores": 2}}
    assert log.ends[0]["reason"] == "8 steps done"
    assert any(n.result.confirmations for n in log.nodes.values())
    assert any(n.result.profile == {"static": {"fma": 3}} for n in log.nodes.values())


def test_each_candidate_is_a_file_that_a_person_can_open(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        node = study.step()
    path = study.workspace.artifacts.path / study_folder("s") / "node_0001.py"
    assert path.read_text() == node.source


def test_damage_is_stated_and_its_nodes_are_lost(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(5)
    (path,) = (study.workspace.journal_path / study_folder("s")).glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if b'"kind":"node"' in line and b'"number":3' in line)
    lines[place] = lines[place].replace(b'"number":3', b'"number":8')
    path.write_bytes(b"".join(lines))
    log = study.workspace.study("s")
    assert log.lost == (3,)
    assert log.lost_records == 1
    assert "1 journal records of study 's' are lost" in log.state_damage()
    assert f"line {place + 1}" in log.state_damage()
    assert log.proposals[3].source == study.tree.node(3).source
    assert Status.LOST not in {n.status for n in log.nodes.values()}


def test_a_damaged_header_is_stated_and_read_from_its_copy(tmp_path) -> None:
    with fakes.study(tmp_path, name="a") as study:
        study.run(3)
    (path,) = (study.workspace.journal_path / study_folder("a")).glob("*.jsonl")
    before = study.workspace.study("a")
    path.write_bytes(b"x" + path.read_bytes()[1:])
    after = study.workspace.study("a")
    assert after.state_damage().startswith("1 journal records of study 'a' are lost")
    assert after.header == before.header
    assert after.nodes == before.nodes
    assert study.workspace.studies() == ["a"]
    study.workspace.rebuild()
    assert study.workspace.sql("SELECT study FROM studies")["study"].tolist() == ["a"]
    assert len(study.workspace.sql("SELECT * FROM nodes")) == 3


def test_a_study_without_a_readable_header_or_its_copy_is_an_error(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    workspace.create_study({"name": "a", **HEADER}).close()
    folder = workspace.journal_path / study_folder("a")
    (path,) = folder.glob("*.jsonl")
    path.write_bytes(b"x" + path.read_bytes())
    (folder / "header").unlink()
    with pytest.raises(errors.StoreError, match="no readable header"):
        workspace.study("a")
    assert workspace.studies() == []


def test_what_was_tried_is_the_same_whether_its_keys_were_kept_or_are_made_anew(tmp_path, monkeypatch) -> None:
    with fakes.study(tmp_path, name="s", operator=fakes.Writer(choices=3)) as study:
        study.run(8)
    assert any(n.status is Status.DUPLICATE for n in study.tree.nodes)
    assert set(study.workspace.study("s").keys) == set(range(1, 9))

    def resume():
        with Study.resume("s", workspace=tmp_path, operator=fakes.Writer(), evaluator=fakes.Judge()) as again:
            return again._seen

    assert resume() == study._seen
    parsed = []
    monkeypatch.setattr("kernelevolve.operators.base.source_key", lambda source: parsed.append(source) or source)
    assert resume() == study._seen
    assert not parsed
    monkeypatch.setattr("kernelevolve.operators.base._KEYS_BY", "another Python")
    assert set(resume()) == {n.source for n in study.tree.nodes}
