"""The tables: rebuilt equals incremental, numbers follow from samples, and nobody is locked out without a word."""

import os
import re
import subprocess
import sys
import time

import duckdb
import pandas as pd
import pytest

from kernelevolve import errors
from kernelevolve.records import Proposal, Result, Status
from kernelevolve.store import Database, Workspace, schema
from kernelevolve.store.workspace import study_folder
from tests import fakes
from tests.store.test_full_disk import find_way


def contents(workspace: Workspace) -> dict[str, pd.DataFrame]:
    tables = {}
    for name in [*schema.TABLES, *schema.VIEWS]:
        table = workspace.database().sql(f"SELECT * FROM {name} ORDER BY ALL", sync=False)
        tables[name] = table
    return tables


def assert_equal(a: dict[str, pd.DataFrame], b: dict[str, pd.DataFrame]) -> None:
    for name in a:
        pd.testing.assert_frame_equal(a[name], b[name], obj=name)


def test_a_rebuild_equals_what_was_imported_step_by_step(tmp_path) -> None:
    workspace = Workspace(tmp_path)
    with fakes.study(tmp_path, name="one") as one, fakes.study(tmp_path, name="two", seed=1) as two:
        for _ in range(6):
            one.step()
            workspace.sync()
            two.step()
        one.pin(1)
        one.run(3)
        two.submit("x = 1\n", parent=1)
        workspace.sync()
        assert workspace.sync() == 0
    incremental = contents(workspace)
    assert len(incremental["nodes"]) == 6 + 3 + 7
    workspace.rebuild()
    assert_equal(contents(workspace), incremental)


def test_a_deleted_database_comes_back(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(4)
    before = study.workspace.sql("SELECT * FROM nodes ORDER BY ALL")
    study.workspace.database().path.unlink()
    pd.testing.assert_frame_equal(study.workspace.sql("SELECT * FROM nodes ORDER BY ALL"), before)


def test_every_ratio_is_recomputed_from_samples_by_one_query(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(12)
    view = study.workspace.sql("SELECT * FROM ratio WHERE session = 'evaluate'")
    stored = {(n.number, name): i.value for n in study.tree.nodes for name, i in n.result.ratios.items()}
    assert len(view) == len(stored)
    for row in view.itertuples():
        assert row.ratio == pytest.approx(stored[row.node, row.baseline], rel=1e-12)
        assert row.rounds == 7
    documented = (schema.__doc__ or "").split("    WITH")[1].split("`session`")[0]
    recomputed = study.workspace.sql("WITH" + documented)
    assert len(recomputed) == study.workspace.sql("SELECT count(*) AS n FROM ratio")["n"][0]


def test_confirmations_are_recomputed_from_samples_too(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(12)
    view = study.workspace.sql("""
        SELECT e.node, e.ratio, min(r.ratio) AS again FROM evaluations e
        JOIN ratio r USING (study, node, session) WHERE e.session LIKE 'confirm%' GROUP BY ALL""")
    assert len(view)
    assert view["ratio"].tolist() == pytest.approx(view["again"].tolist(), rel=1e-12)


def test_the_best_of_the_tables_is_the_best_of_the_study(tmp_path) -> None:
    for seed in range(4):
        with fakes.study(tmp_path, name=f"s{seed}", seed=seed) as study:
            study.run(10)
        row = study.workspace.sql("SELECT * FROM best WHERE study = ?", [study.name]).iloc[0]
        assert row["node"] == study.best.number
        assert row["ratio"] == pytest.approx(study.tree.score(study.best.number))
        assert row["confirmed"]


def test_stages_and_edges_tell_the_lineage(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(10)
    stages = study.workspace.sql("SELECT node, stage FROM stages").set_index("node")["stage"].to_dict()
    assert stages == {n.number: study.tree.stage(n.number) for n in study.tree.nodes}
    edges = study.workspace.sql("SELECT parent, child FROM edges ORDER BY ALL")
    lineage = sorted((p, n.number) for n in study.tree.nodes for p in n.parents)
    assert sorted(map(tuple, edges.to_numpy().tolist())) == lineage


def test_hostile_texts_are_data(tmp_path) -> None:
    text = "'); DROP TABLE nodes; -- <script>\udcff\0 \\u0000"
    with fakes.study(tmp_path, name="s") as study:
        study.submit("x = 1\n")
        study.hint(1, text)
        selection = study.select()
        study.record(Result(Proposal("", "cpp", "fake", selection=selection), Status.CRASHED, text))
    acts = study.workspace.sql("SELECT act, arguments->>'text' AS text FROM interventions WHERE act = 'hint'")
    assert acts["text"][0].startswith("'); DROP TABLE nodes; -- <script>")
    details = study.workspace.sql("SELECT detail FROM nodes ORDER BY node")["detail"]
    assert len(details) == 2
    assert details[1].startswith("'); DROP TABLE nodes; -- <script>")
    assert study.workspace.study("s").nodes[2].result.detail == text


def test_a_damaged_line_is_counted_in_the_tables(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(3)
    (path,) = (study.workspace.journal_path / study_folder("s")).glob("*.jsonl")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"number":2,"result"', b'"number":7,"result"'))
    assert study.workspace.sql("SELECT sum(lost) AS n FROM imports")["n"][0] == 1
    assert study.workspace.sql("SELECT node FROM nodes ORDER BY node")["node"].tolist() == [1, 3]


def test_two_records_of_one_node_are_told_apart_the_same_way_every_time(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(3)
    workspace = study.workspace
    workspace.sync()
    folder = workspace.journal_path / study_folder("s")
    (path,) = folder.glob("*.jsonl")
    (folder / "a-copy.jsonl").write_bytes(path.read_bytes())
    workspace.sync()
    incremental = contents(workspace)
    assert incremental["nodes"]["node"].tolist() == [1, 2, 3]
    workspace.rebuild()
    assert_equal(contents(workspace), incremental)


def run_python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_syncers_at_once_import_every_record_once(tmp_path) -> None:
    with fakes.study(tmp_path, name="s", evaluator=fakes.Judge(failing=0.0)) as study:
        code = f"""
import time
from kernelevolve.store import Workspace
workspace, end = Workspace({str(tmp_path)!r}), time.monotonic() + 3
print("ready", flush=True)
while time.monotonic() < end:
    workspace.sync()
"""
        syncers = [run_python(code) for _ in range(2)]
        for syncer in syncers:
            assert syncer.stdout is not None
            assert syncer.stdout.readline() == "ready\n"
        while any(s.poll() is None for s in syncers):
            study.step()
            # A reader beside both of them always gets an answer, and never half a node.
            table = study.workspace.database().sql(
                "SELECT n.node, count(s.ms) AS samples FROM nodes n LEFT JOIN samples s USING (study, node) "
                "GROUP BY ALL", sync=False) if study.workspace.database().path.exists() else None
            assert table is None or (table["samples"] == 63).all()
    for syncer in syncers:
        assert syncer.wait() == 0, syncer.communicate()[1]
    study.workspace.sync()
    incremental = contents(study.workspace)
    assert incremental["nodes"]["node"].tolist() == list(range(1, len(study.tree) + 1))
    study.workspace.rebuild()
    assert_equal(contents(study.workspace), incremental)


def test_a_database_held_elsewhere_is_an_error_that_names_the_holder(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.step()
    study.workspace.sync()
    database = Database(tmp_path, timeout_s=0.5)
    holder = run_python(f"""
import duckdb, time
connection = duckdb.connect({str(database.path)!r})
print("held", flush=True)
time.sleep(60)
""")
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        began = time.monotonic()
        with pytest.raises(errors.StoreError, match=rf"held by process {holder.pid} .* close its\s+connection"):
            database.sql("SELECT 1")
        assert time.monotonic() - began < 5
        study_again = fakes.study(tmp_path, name="t")
        study_again.step()  # the search itself needs no database
        study_again.close()
    finally:
        holder.kill()
        holder.wait()
    assert len(database.sql("SELECT * FROM nodes")) == 2


def test_a_connection_of_the_same_process_is_named_as_such(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.step()
    study.workspace.sync()
    connection = duckdb.connect(str(study.workspace.database().path))
    try:
        with pytest.raises(errors.StoreError, match=rf"a connection of this process \({os.getpid()}\)"):
            Database(tmp_path, timeout_s=0.3).sql("SELECT 1", sync=False)
    finally:
        connection.close()


def test_a_file_that_is_no_database_is_put_aside_and_made_anew_with_a_warning(tmp_path, caplog) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.step()
    path = study.workspace.database().path
    path.write_bytes(b"this is not a database" * 1000)
    assert len(study.workspace.sql("SELECT * FROM nodes")) == 1
    (aside,) = tmp_path.glob("*.damaged-*")
    assert aside.read_bytes() == b"this is not a database" * 1000
    assert f"made anew from the journal (6 records): IO Error: The file \"{path}\" exists, but it is not" in caplog.text
    assert aside.name in caplog.text


def test_tables_of_a_newer_version_are_refused_with_both_versions(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.step()
    study.workspace.sync()
    with duckdb.connect(str(study.workspace.database().path)) as connection:
        connection.execute("UPDATE meta SET version = 99")
    with pytest.raises(errors.StoreError, match="of version 99; this package writes version 2"):
        study.workspace.sync()
    study.workspace.rebuild()
    study.workspace.sync()


def test_a_query_cannot_write(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.step()
    with pytest.raises(duckdb.Error):
        study.workspace.sql("DELETE FROM nodes")


def test_an_empty_workspace_has_empty_tables(tmp_path) -> None:
    workspace = Workspace(tmp_path / "new")
    assert workspace.sql("SELECT * FROM nodes").empty
    assert workspace.studies() == []


def test_tables_of_an_older_version_are_made_anew_with_a_warning(tmp_path, caplog) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(3)
    study.workspace.sync()
    with duckdb.connect(str(study.workspace.database().path)) as connection:
        connection.execute("UPDATE meta SET version = 1")
        connection.execute("DROP TABLE totals")
    assert len(study.workspace.sql("SELECT * FROM nodes")) == 3
    assert "they were of version 1, and this package writes version 2" in caplog.text


def test_a_file_of_a_newer_duckdb_is_refused_with_both_versions_and_kept(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(1)
    study.workspace.sync()
    path = study.workspace.database().path
    content = bytearray(path.read_bytes())
    content[12:20] = (5000).to_bytes(8, "little")  # after the checksum and "DUCK"
    path.write_bytes(content)
    with pytest.raises(duckdb.Error, match="computed checksum") as refusal:
        duckdb.connect(str(path))
    content[:8] = int(re.search(r"computed checksum (\d+)", str(refusal.value))[1]).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(errors.StoreError, match=rf"newer DuckDB than this one \({duckdb.__version__}\).* number 5000"):
        study.workspace.sync()
    assert path.read_bytes() == content
    assert not list(tmp_path.glob("*.damaged-*"))


READ_ONLY = """
import os, sys
from kernelevolve import errors
from kernelevolve.store import Workspace
from kernelevolve.study import Study
from kernelevolve.testing.searching import Judge, Writer
space = Workspace(sys.argv[1])
assert len(space.study("s").nodes) == 3
assert space.sql("SELECT count(*) AS n FROM nodes")["n"][0] == 3
for act in (lambda: Study.resume("s", workspace=space, operator=Writer(), evaluator=Judge()), space.rebuild):
    try:
        act()
    except errors.StoreError as error:
        assert "Expected a folder that this user may write to" in str(error), error
        assert "copy the workspace to such a folder" in str(error), error
    else:
        raise SystemExit(f"{act} wrote to a read-only folder")
"""


def test_a_read_only_folder_answers_questions_and_refuses_to_go_on_with_what_to_do(tmp_path) -> None:
    space = tmp_path / "w"
    with fakes.study(space, name="s") as study:
        study.run(3)
    way = find_way()
    if way is None:
        pytest.skip("neither root nor user namespaces: no read-only file system can be mounted")
    shell = f"mount --bind {space} {space} && mount -o remount,bind,ro {space} && exec {sys.executable} - {space}"
    for _ in range(2):  # without tables, then with some
        done = subprocess.run([*way, "sh", "-c", shell], input=READ_ONLY, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        study.workspace.sync()
