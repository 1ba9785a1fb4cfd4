import json
import multiprocessing
import os

import pytest

from kernelevolve import errors, platforms
from kernelevolve.platforms import cpu


def test_auto_is_a_platform_of_this_machine():
    assert platforms.resolve("auto").available()[0]


def test_an_unknown_platform_names_the_known_ones():
    with pytest.raises(errors.UnknownNameError, match="cpu"):
        platforms.resolve("abacus")


def test_facts_are_plain_json_with_plausible_peaks():
    facts = platforms.resolve("cpu").facts()
    assert json.loads(json.dumps(facts)) == facts
    assert 1 <= facts["cores"] <= os.cpu_count()
    assert facts["l1_bytes"] < facts["l3_bytes"] < facts["memory_bytes"]
    assert 1 < facts["copy_gb_s"] < facts["cache_gb_s"] * facts["cores"]
    assert facts["fp32_gflops"] > 4 * facts["cores"]


def test_peaks_are_measured_once_and_read_back(tmp_path, monkeypatch):
    first = cpu._peaks()
    monkeypatch.setattr("kernelevolve.workers.call", lambda *a, **k: pytest.fail("measured again"))
    assert cpu._peaks() == first


def test_a_torn_cache_file_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("kernelevolve.workers.call", lambda *a, **k: {"copy_gb_s": 1.0})
    assert cpu._peaks() == {"copy_gb_s": 1.0}
    (made,) = (tmp_path / "kernelevolve").glob("peaks-*.json")
    made.write_text('{"copy_gb')
    assert cpu._peaks() == {"copy_gb_s": 1.0}
    assert json.loads(made.read_text()) == {"copy_gb_s": 1.0}


def test_peaks_measured_again_are_kept_where_they_are_larger(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = platforms.resolve("cpu").facts()
    (path,) = (tmp_path / "kernelevolve").glob("peaks-*.json")
    low = {**json.loads(path.read_text()), "copy_gb_s": 0.001, "fp32_gflops": 10 * first["fp32_gflops"]}
    path.write_text(json.dumps(low))
    assert platforms.resolve("cpu").facts()["copy_gb_s"] == 0.001
    again = platforms.resolve("cpu").facts(again=True)
    assert again["copy_gb_s"] > 0.1
    assert again["fp32_gflops"] == low["fp32_gflops"]
    assert json.loads(path.read_text())["copy_gb_s"] == again["copy_gb_s"]


def test_the_environments_id_changes_with_what_can_change_a_measurement():
    platform = platforms.resolve("cpu")
    a, b = (platform.environment({"threads": n}) for n in (1, 2))
    assert a["id"] != b["id"]
    assert a["id"] == platform.environment({"threads": 1})["id"]


def test_lscpu_serves_where_sys_does_not():
    assert set(cpu._caches_lscpu()) <= {"l1", "l2", "l3", "l4"}
    assert all(v > 0 for v in cpu._caches_lscpu().values())


def _hold(path, ready, leave):
    os.environ["XDG_CACHE_HOME"] = path
    with platforms.resolve("cpu").timing_lock(5):
        ready.set()
        leave.wait(20)


def test_one_timing_at_a_time_and_a_dead_holder_does_not_block(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(str(tmp_path), ready, leave))
    holder.start()
    assert ready.wait(30)
    with pytest.raises(errors.WorkerError, match="lsof"), platforms.resolve("cpu").timing_lock(0.2):
        pass
    holder.kill()
    holder.join()
    with platforms.resolve("cpu").timing_lock(5) as waited:
        assert waited < 5
