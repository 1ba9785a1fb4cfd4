"""A report is one inert page with everything in it, whatever the study holds."""

import dataclasses
import html.parser
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest

from kernelevolve import errors, report, views
from kernelevolve.report.exporter import PLOTLY, ReportExporter
from kernelevolve.report.sanitize import sanitize
from kernelevolve.store import Workspace
from kernelevolve.testing import synthetic

PAYLOADS = (
    "<script>alert('x')</script>", "<img src=x onerror=alert(1)>", "</title><script>alert(2)</script>",
    "[click](javascript:alert(3))", "</script><svg onload=alert(4)>", "<iframe src='http://evil.example/'></iframe>",
    "<style>@import url(http://evil.example/x.css)</style>", "<a href='javascript:alert(5)'>x</a>",
    "<base href='http://evil.example/'>", "<meta http-equiv='refresh' content='0;url=http://evil.example'>",
    "<form action='http://evil.example'><input></form>", "<math><mtext></mtext><script>alert(6)</script></math>",
)


class Audit(html.parser.HTMLParser):
    """Counts what could run or fetch: tags, handlers, addresses."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.active: list[str] = []
        self.fetches: list[str] = []
        self.scripts = 0
        self.figures: list[dict[str, str]] = []
        self.text: list[str] = []
        self.policy = ""
        self._silent = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        values = {k: v or "" for k, v in attrs}
        self._silent = tag in ("script", "style")
        if tag == "script" and values.get("type") != "application/json":
            self.scripts += 1
        if tag == "meta" and values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]
        elif tag in ("iframe", "object", "embed", "form", "input", "base", "link", "svg", "math", "template") or (
            tag == "meta" and "http-equiv" in values
        ):
            self.active.append(f"<{tag}>")
        if values.get("role") == "img":
            self.figures.append(values)
        for name, value in values.items():
            if name.startswith("on") or value.strip().lower().startswith(("javascript:", "vbscript:")):
                self.active.append(f"{tag} {name}")
            if name in ("src", "srcset", "poster", "background", "data") and not value.startswith("data:image/"):
                self.fetches.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag):
        self._silent = False

    def handle_data(self, data):
        if not self._silent:
            self.text.append(data)


def hostile_nodes():
    """Every text that a problem, a candidate or a model may choose carries every payload."""
    evil = "\n".join(PAYLOADS)
    made = []
    for node in synthetic.nodes(6, failing=0.4):
        selection = dataclasses.replace(node.proposal.selection, reason=evil, policy=evil)
        proposal = dataclasses.replace(node.proposal, source=f"{node.source}\n# {evil}", rationale=evil, move=evil,
                                       language=evil, operator=evil, selection=selection)
        diagnosis = node.result.diagnosis and dataclasses.replace(node.result.diagnosis, summary=evil, causes=(evil,))
        errors_ = tuple(dataclasses.replace(e, trial=evil) for e in node.result.errors)
        result = dataclasses.replace(node.result, proposal=proposal, detail=evil, log=evil, diagnosis=diagnosis,
                                     errors=errors_, profile={"note": evil, evil: 1})
        made.append(dataclasses.replace(node, result=result))
    return made


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("report")
    space = Workspace(folder / "space")
    synthetic.write(space, "usual", synthetic.nodes(20))
    path = report.report("usual", space, folder / "report.html")
    return path, path.read_text("utf-8")


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("hostile")
    space = Workspace(folder / "space")
    evil = "".join(PAYLOADS)
    problem = dataclasses.replace(synthetic.problem(), id=evil, suite_version=evil, weak=evil, path=evil)
    synthetic.write(space, "<img src=x onerror=alert(1)>'; DROP TABLE nodes; --", hostile_nodes(), problem_=problem)
    return report.report(space.studies()[0], space, folder / "report.html").read_text("utf-8")


def test_the_report_holds_what_a_colleague_asks_in_that_order(page):
    text = " ".join(Audit(page[1]).text)
    asked = ["A faster cpu/rms_norm", "a win", "Confirmed in 3 of 3", "against PyTorch eager", "against torch.compile",
             "Fitness trajectory", "Search tree", "candidates shown", "samples", "limit", "copy bandwidth",
             "class", "the speed of its parent", "not correct, of 20 in all", "A made-up processor", "per_round"]
    places = [text.find(a) for a in asked]
    assert all(p >= 0 for p in places), [a for a, p in zip(asked, places, strict=True) if p < 0]
    assert places[:7] == sorted(places[:7])


def test_the_page_runs_two_scripts_that_its_policy_names_and_fetches_nothing(page):
    audit = Audit(page[1])
    assert audit.scripts == 2
    assert audit.policy.count("'sha256-") == 2
    assert audit.policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in audit.policy.split("style-src")[0]
    assert audit.active == []
    assert audit.fetches == []
    assert "Error" not in re.findall(r"class='error'", page[1])
    assert len(page[1]) < 20e6


def test_every_figure_has_a_text_in_its_place(page):
    figures = Audit(page[1]).figures
    assert len(figures) == 5
    assert all(len(f["aria-label"]) > 30 for f in figures)


def test_payloads_in_any_text_leave_no_active_markup(hostile_page):
    audit = Audit(hostile_page)
    assert audit.active == []
    assert audit.fetches == []
    assert audit.scripts == 2
    assert "evil.example" in " ".join(audit.text), "the payload should be readable, not gone"
    assert not re.search(r"<a [^>]*evil", hostile_page)


def test_payloads_stay_inside_the_figures_data(hostile_page):
    for data in re.findall(r"<script type='application/json' class='plot-data'>(.*?)</script>", hostile_page, re.S):
        assert "<" not in data
        json.loads(data)


@pytest.mark.parametrize("made", [[], synthetic.nodes(1, failing=1)], ids=["empty", "one failure"])
def test_a_study_without_a_result_has_a_report_that_says_so(tmp_path, made):
    space = Workspace(tmp_path / "space")
    synthetic.write(space, "thin", made)
    text = " ".join(Audit(report.report("thin", space, tmp_path / "r.html").read_text("utf-8")).text).lower()
    assert ("no candidate yet" if not made else "no candidate is correct yet") in text


def test_the_query_of_the_headline_gives_the_median_of_paired_rounds(tmp_path):
    space = Workspace(tmp_path)
    study = synthetic.write(space, "it's", synthetic.nodes(10, failing=0))
    best = report.best_of(study)
    answer = space.sql(report.headline_query(study)).set_index("baseline")
    own, eager = (next(t for t in best.result.timings if t.name == n) for n in ("candidate", "eager"))
    ratios = sorted(b / c for b, c in zip(eager.samples_ms, own.samples_ms, strict=True))
    assert answer.loc["eager", "ratio"] == pytest.approx((ratios[14] + ratios[15]) / 2)
    assert answer.loc["eager", "rounds"] == 30


def test_a_refuted_or_vetoed_node_is_not_the_headline(tmp_path):
    space = Workspace(tmp_path)
    study = synthetic.write(space, "s", synthetic.nodes(10, failing=0))
    first = report.best_of(study).number
    writer = space.open_study("s")
    writer.append("act", {"act": "veto", "number": first, "on": True})
    second = report.best_of(space.study("s")).number
    writer.append("confirm", {"number": second, "intervals": []})
    writer.close()
    third = report.best_of(space.study("s")).number
    assert len({first, second, third}) == 3


def test_lineage_tells_what_each_edit_bought(tmp_path):
    study = synthetic.write(Workspace(tmp_path), "s", synthetic.nodes(20))
    told = report.lineage(study)
    best = report.best_of(study)
    assert f"node {best.number}" in told.text
    parent = study.nodes[best.parents[0]]
    assert f"{views.html.number(best.fitness / parent.fitness)}× the speed of its parent" in told.text
    assert told.html.count("<details open>") == 1


def test_the_executed_notebook_can_be_had_too(tmp_path):
    space = Workspace(tmp_path / "space")
    synthetic.write(space, "s", synthetic.nodes(5, failing=0))
    notebook = nbformat.read(report.report("s", space, tmp_path / "r.ipynb"), 4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    assert notebook.cells[0].metadata.tags == ["parameters"]
    assert all(len(c.source.splitlines()) <= 8 for c in notebook.cells)


def test_mistakes_are_named(tmp_path):
    space = Workspace(tmp_path)
    synthetic.write(space, "s", [])
    with pytest.raises(errors.StudyError, match="no study named"):
        report.report("t", space, tmp_path / "r.html")
    with pytest.raises(errors.SettingError, match=r"\.html or \.ipynb"):
        report.report("s", space, tmp_path / "r.pdf")


def test_the_exporter_takes_any_notebook_and_makes_it_inert():
    v4 = nbformat.v4
    words = "# Hi\n" + "\n\n".join(PAYLOADS) + "\n\n[ok](https://example.org)"
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell(words)])
    for payload in PAYLOADS:
        outputs = [
            v4.new_output("display_data", data={"text/html": payload}),
            v4.new_output("display_data", data={"text/markdown": payload}),
            v4.new_output("display_data", data={"text/plain": payload}),
            v4.new_output("display_data", data={"image/svg+xml": payload, "text/plain": "svg"}),
            v4.new_output("display_data", data={PLOTLY: {"data": [], "layout": {"title": {"text": payload}}}}),
            v4.new_output("stream", text="\x1b[31m" + payload),
            v4.new_output("error", ename="E", evalue=payload, traceback=[payload]),
        ]
        notebook.cells.append(v4.new_code_cell(payload, outputs=outputs))
    page, resources = ReportExporter().from_notebook_node(notebook)
    audit = Audit(page)
    assert audit.active == []
    assert audit.fetches == []
    assert audit.scripts == 2
    assert resources["output_extension"] == ".html"
    assert '<a href="https://example.org">ok</a>' in page
    assert "\x1b" not in page


def test_a_notebook_without_figures_carries_no_script():
    page, _ = ReportExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("x")]))
    assert Audit(page).scripts == 0
    assert len(page) < 20_000


def test_harmless_html_survives():
    kept = "<table><tr><td colspan='2' class='num'>1</td></tr></table><details open=''><summary>s</summary></details>"
    assert sanitize(kept).count("<") == kept.count("<") + 2  # the parser adds tbody
    assert "alert" not in sanitize("<script>alert(1)</script>")
    assert "<img" in sanitize("<img src='data:image/png;base64,AAAA' alt='a'>")


def test_the_exporter_is_registered_for_nbconvert():
    from nbconvert.exporters import get_exporter

    assert get_exporter("kernelevolve") is ReportExporter


@pytest.mark.timeout(120)
def test_the_report_draws_its_figures_in_a_browser_with_the_network_off(page):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        if os.environ.get("CI") == "true":
            pytest.fail("a browser is needed: apt-get install chromium")
        pytest.skip("no browser on this machine")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND",
         "--virtual-time-budget=8000", "--enable-logging=stderr", "--v=0", "--dump-dom", page[0].as_uri()],
        capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout.count("plot js-plotly-plot drawn") + done.stdout.count("drawn js-plotly-plot") == 5
    assert "Content Security Policy" not in done.stderr
    assert "Uncaught" not in done.stderr


def test_a_report_of_several_studies_opens_with_an_overview_and_says_how_many_won(tmp_path):
    space = Workspace(tmp_path / "space")
    synthetic.write(space, "first", synthetic.nodes(8))
    synthetic.write(space, "second", [])
    page = report.report(["first", "second"], space, tmp_path / "r.html").read_text("utf-8")
    text = " ".join(Audit(page).text)
    assert "Faster kernels for 2 operators" in text
    assert "of 2 operators won" in text
    assert text.count("A faster cpu/rms_norm") == 2
    assert "nothing correct" in text
    assert page.count("application/json") >= 2
