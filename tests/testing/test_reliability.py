"""The table of reliability figures: rows merge by figure, lane and level, and say what was not met."""

import importlib
import sys
from pathlib import Path

import pytest

from kernelevolve.testing.self_test import Outcome, Row, SelfTest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def reliability(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("reliability")
    for name in ("reliability", "reliability_page", "reliability_products"):
        sys.modules.pop(name, None)


def row(part, name, outcome, expected="crashed at check", got="crashed at check", **more):
    return Row(part, name, expected, got, outcome, 1.0, **more)


def test_a_new_row_replaces_the_one_with_its_figure_lane_and_level_and_no_other(reliability, tmp_path):
    make = reliability.Figure
    path = tmp_path / "out" / "reliability.csv"
    reliability.write(path, [make("kills", "cpu", "process", "1", "0", 500, "no", "a, b"),
                             make("kills", "cpu", "bubblewrap", "0"), make("kills", "cuda", "process", "0")])
    other = tmp_path / "gpu.csv"
    other.write_text("figure,lane,isolation,value,extra\nkills,cuda,process,7,x\nnew,cuda,process,1,x\n")
    reliability.write(path, reliability.merged(reliability.read(path), reliability.read(other)))
    found = {row.key: row for row in reliability.read(path)}
    assert found["kills", "cpu", "process"] == make("kills", "cpu", "process", "1", "0", 500, "no", "a, b")
    assert found["kills", "cuda", "process"].value == "7"
    assert [r.key[0] for r in reliability.read(path)] == ["kills", "kills", "kills", "new"]
    assert reliability.read(tmp_path / "none.csv") == []
    assert not list(path.parent.glob("*.part"))


def test_an_accepted_villain_is_listed_by_name(reliability):
    found = SelfTest("cpu", "process", False, (
        row("villain", "aborts", Outcome.PASSED),
        row("villain", "forges", Outcome.FAILED, "dishonest at check", "correct"),
        row("villain", "escapes", Outcome.UNPROMISED, got="needs isolation bubblewrap"),
        row("kill", "kill latency p99", Outcome.PASSED, value=0.25, unit="s", n=120),
        row("overhead", "bubblewrap: start and end", Outcome.MEASURED, value=41.5, unit="ms", n=16),
    ), 1.0)
    rows = {r.figure: r for r in reliability.from_self_test(found)}
    accepted = rows["Villains accepted as correct or as faster"]
    assert (accepted.value, accepted.ok, accepted.note, accepted.n) == ("1", "no", "forges", 2)
    exact = rows["Villains given the exact expected status"]
    assert (exact.value, exact.ok, exact.note) == ("1 of 2", "no", "forges: correct, not dishonest at check")
    assert rows["Villains that this level does not promise to stop"].note == "escapes"
    assert rows["Kill latency beyond the limit, p99"].value == "0.25 s"
    assert rows["Overhead per candidate: start and end"].isolation == "bubblewrap"


def test_the_page_says_what_is_not_met_and_what_is_not_measured(reliability, tmp_path):
    page = importlib.import_module("reliability_page")
    rows = [reliability.Figure("kills", "cpu", "process", "1", "0", 500, "no", "a | b"),
            reliability.Figure("resume", "any", "any", "2 s", "< 5 s", 1, "yes")]
    path = tmp_path / "reliability.md"
    path.write_text("# Reliability\n\nMachines:\n\n- cuda: a made-up GPU; 2026-01-01\n")
    text = page.page(rows, path, lane="")
    assert "1 of 2 figures with a target meet it" in text
    assert "**not met**: kills (cpu, process): 1, target 0" in text
    assert "a \\| b" in text
    assert "issue 6" in text
    assert "- cuda: a made-up GPU; 2026-01-01" in text, "another lane's machine is kept"


@pytest.mark.parametrize("form", [
    lambda key: key.encode(), lambda key: key.encode().hex().encode(), lambda key: key.encode("utf-16-le"),
    lambda key: __import__("base64").b64encode(b"Authorization: " + key.encode() + b"!"),
])
def test_a_key_is_found_in_any_form(reliability, form):
    products = importlib.import_module("reliability_products")
    key = "sk-planted-0123456789abcdef"
    assert products.holds(b"\x00head " + form(key) + b" tail", key)
    assert not products.holds(b"\x00head " + form(key[::-1]) + b" tail", key)


def test_forty_payloads_are_seen_by_the_audit_when_they_are_active(reliability):
    products = importlib.import_module("reliability_products")
    assert len(set(products.PAYLOADS)) == 40
    markdown = ("[x](", "![x](")
    inside_a_comment = ("<style>",)
    unseen = [p for p in products.PAYLOADS if not p.startswith((*markdown, *inside_a_comment))
              and not (audit := products.Audit(f"<p>{p}</p>")).found and not audit.scripts]
    assert unseen == []
