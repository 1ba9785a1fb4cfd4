"""Views answer for every study there can be, and their numbers are the nodes'."""

import dataclasses
import json
import math
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelevolve import views
from kernelevolve.records import Interval, Node, Status
from kernelevolve.search import Tree
from kernelevolve.testing import synthetic
from kernelevolve.views.palette import COLOURS, OUTCOMES, SYMBOLS, outcome
from kernelevolve.views.verdict import confirmation, verdict

PAYLOAD = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"\x1b[31m\u202e"


def with_ratio(node: Node, value: float) -> Node:
    ratios = {"eager": Interval(value, value, value), "compile": Interval(value, value, value)}
    result = dataclasses.replace(node.result, status=Status.CORRECT, ratios=ratios)
    return Node(node.number, result, value, node.time)


def fail(node: Node) -> Node:
    return Node(node.number, dataclasses.replace(node.result, status=Status.CRASHED, timings=(), ratios={}), 0.0, "")


STUDIES = {
    "empty": [],
    "one": synthetic.nodes(1, failing=0),
    "all failed": [fail(n) for n in synthetic.nodes(12)],
    "infinite and NaN": [with_ratio(n, v) for n, v in
                         zip(synthetic.nodes(4), (math.inf, math.nan, -1.0, 2.0), strict=True)],
    "usual": synthetic.nodes(40),
}


@pytest.mark.parametrize("nodes", STUDIES.values(), ids=STUDIES.keys())
@pytest.mark.parametrize("view", [views.trajectory, views.tree, views.failures])
def test_every_view_draws_every_study_and_says_in_words_what_it_shows(view, nodes):
    figure = view(nodes)
    json.loads(figure.to_json())
    assert len(figure.layout.meta["alt"]) > 20
    assert figure.layout.meta["alt"].endswith(".")


@pytest.mark.parametrize("nodes", STUDIES.values(), ids=STUDIES.keys())
def test_the_table_has_a_row_per_node(nodes):
    assert views.candidate_table(nodes).html.count("<tr") == len(nodes) + 1


def test_every_status_has_an_outcome_with_a_shape_and_a_colour_of_its_own():
    for status in Status:
        assert outcome(status) in OUTCOMES
    assert len(set(SYMBOLS.values())) == len(OUTCOMES) == len(COLOURS)


@pytest.mark.parametrize("failing", [0, 0.5, 1])
def test_the_axis_of_candidates_is_always_labelled(failing):
    figure = views.trajectory(synthetic.nodes(9, failing=failing))
    axes = list(figure.select_xaxes(selector=lambda a: a.title.text))
    assert len(axes) == 1
    assert axes[0].showticklabels
    drawn = {t.xaxis or "x" for t in figure.data}
    assert axes[0].plotly_name.replace("axis", "") in drawn, "an axis without a trace is not drawn"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 60), st.integers(0, 10_000), st.floats(0, 1))
def test_the_best_so_far_never_falls_and_is_always_an_attempt(count, seed, failing):
    nodes = synthetic.nodes(count, seed=seed, failing=failing)
    data = views.trajectory_data(nodes)
    best = data["best"].dropna().to_numpy()
    assert (np.diff(best) >= 0).all()
    for row in data[data["best_node"] > 0].itertuples():
        assert row.best == nodes[row.best_node - 1].fitness == max(n.fitness for n in nodes[: row.node])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 80), st.integers(0, 10_000))
def test_no_two_vertices_of_the_tree_share_a_place_and_the_best_path_starts_at_a_draft(count, seed):
    nodes = synthetic.nodes(count, seed=seed)
    data = views.tree_data(nodes)
    assert len(set(zip(data["x"], data["y"], strict=True))) == count
    path = data.loc[data["best_path"], "node"].tolist()
    if path:
        assert nodes[path[0] - 1].parents == ()
        assert path[-1] == views.best(nodes).number


def test_views_and_search_agree_on_the_best_the_stage_and_the_depth():
    nodes = synthetic.nodes(40)
    tree = Tree(nodes)
    tree.refuted.add(tree.best.number)
    tree.vetoed.add(tree.best.number)
    assert views.best(tree).number == tree.best.number
    assert views.best(nodes).number == Tree(nodes).best.number
    assert [n.number for n in views.ranked_nodes(tree)] == [n.number for n in tree.ranked()]
    for row in views.frame(tree).itertuples():
        assert (row.stage, row.depth) == (tree.stage(row.node), tree.depth(row.node))


def test_confirmations_decide_over_the_first_measurement():
    slow, fast = with_ratio(synthetic.nodes(1)[0], 2.0), with_ratio(synthetic.nodes(2)[1], 3.0)
    again = dataclasses.replace(fast.result, confirmations=(Interval(1.5, 1.4, 1.6),))
    assert views.best([slow, dataclasses.replace(fast, result=again)]) is slow


def test_modelled_times_are_not_ranked_beside_measured_ones():
    measured, modelled = with_ratio(synthetic.nodes(1)[0], 1.1), with_ratio(synthetic.nodes(2)[1], 9.0)
    modelled = dataclasses.replace(modelled, result=dataclasses.replace(modelled.result, measured=False))
    assert views.best([measured, modelled]) is measured
    assert views.best([modelled]) is modelled


def test_failure_counts_add_up_to_all_candidates():
    nodes = synthetic.nodes(60, failing=0.6)
    data = views.failures_data(nodes)
    assert data["n"].sum() == 60
    assert data["share"].sum() == pytest.approx(1)
    assert sum(len(numbers) for numbers in data["nodes"]) == 60


def test_timing_keeps_every_sample_and_draws_the_quartiles_of_all():
    node = synthetic.nodes(1, failing=0)[0]
    data = views.timing_data(node.result)
    assert len(data) == sum(len(t.samples_ms) for t in node.result.timings)
    figure = views.timing(node.result)
    box = next(t for t in figure.data if t.type == "box")
    assert box.name == "candidate"
    assert box.median[0] == pytest.approx(node.result.timings[0].median_ms)
    assert "nothing was timed" in views.timing(()).layout.annotations[0].text


def test_the_roofline_shares_are_bytes_over_time_over_the_peak():
    node, problem = synthetic.nodes(1, failing=0)[0], synthetic.problem()
    data = views.roofline_data([node], {"copy_gb_s": 20.0}, bytes_min=problem.bytes_min, flops=0)
    own = data[data["name"] == "node 1"].iloc[0]
    assert own.gbytes_s == pytest.approx(problem.bytes_min / node.result.timings[0].median_ms / 1e6)
    assert views.roofline_figure(data).data[0].x[0] == pytest.approx(own.gbytes_s)
    profiled = dataclasses.replace(node.result, profile={"roofline": {"peak_gb_s": 400.0}})
    cached = views.roofline_data([dataclasses.replace(node, result=profiled)], {"copy_gb_s": 20.0},
                                 bytes_min=problem.bytes_min, flops=0)
    assert set(cached["peak_gbytes_s"]) == {400.0}
    nothing = views.roofline_figure(views.roofline_data([], {}, bytes_min=0, flops=0))
    assert "no roofline" in nothing.layout.annotations[0].text


@pytest.mark.parametrize("view", [views.trajectory, views.tree, views.failures])
def test_untrusted_text_is_inert_in_figures(view):
    node = synthetic.nodes(1)[0]
    selection = dataclasses.replace(node.proposal.selection, reason=PAYLOAD)
    proposal = dataclasses.replace(node.proposal, rationale=PAYLOAD, move=PAYLOAD, selection=selection)
    result = dataclasses.replace(node.result, proposal=proposal, detail=PAYLOAD, status=Status.CRASHED)
    texts = [str(t) for trace in view([dataclasses.replace(node, result=result)]).data for t in trace.hovertext or ()]
    assert any("alert" in t for t in texts)
    for text in texts:
        assert set(re.findall(r"<[^>]*>", text)) <= {"<b>", "</b>", "<br>"}
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_untrusted_text_is_inert_in_the_table_and_the_listings():
    node = synthetic.nodes(1)[0]
    proposal = dataclasses.replace(node.proposal, rationale=PAYLOAD, move=PAYLOAD, source=PAYLOAD)
    bad = dataclasses.replace(node, result=dataclasses.replace(node.result, proposal=proposal, detail=PAYLOAD))
    listings = views.html.source(PAYLOAD).html, views.html.diff(["+" + PAYLOAD]).html
    for html in (views.candidate_table([bad]).html, *listings):
        assert "<script" not in html
        assert "<img" not in html
        assert "alert" in html
        assert "\x1b" not in html


@pytest.mark.parametrize(("ratio", "floor", "word"), [
    (Interval(1.5, 1.4, 1.6), 0.02, "win"), (Interval(1.01, 1.005, 1.02), 0.02, "tie"),
    (Interval(1.5, 0.9, 2.0), 0.02, "tie"), (Interval(0.8, 0.7, 0.9), 0.02, "loss"),
    (Interval(0.99, 0.985, 0.995), 0.02, "tie"), (Interval(math.nan, 0, 0), 0.02, "not timed"),
    (None, 0.0, "not timed"),
])
def test_a_win_excludes_one_and_exceeds_the_noise_floor(ratio, floor, word):
    assert verdict(ratio, floor) == word


def test_one_lost_confirmation_is_no_confirmation():
    good, bad = Interval(1.5, 1.4, 1.6), Interval(1.0, 0.9, 1.1)
    assert confirmation((good, good), 0.02) == "confirmed in 2 of 2 fresh processes"
    assert confirmation((good, bad), 0.02).startswith("not confirmed")
    assert confirmation((), 0.02).startswith("not yet")


@pytest.mark.parametrize(("value", "text"), [
    (1.8349, "1.83"), (12.345, "12.3"), (0.0123, "0.0123"), (2e-7, "2.00e-07"), (0.0, "0"), (123456.0, "123,456"),
    (math.nan, "–"), (math.inf, "∞"), (None, "–"),
])
def test_numbers_have_three_significant_digits(value, text):
    assert views.html.number(value) == text


@pytest.mark.timeout(60)
def test_fifty_thousand_nodes_are_drawn_within_ten_seconds_and_twenty_megabytes():
    few, many = synthetic.nodes(500), []
    for number in range(1, 50_001):
        node = few[(number - 1) % 500]
        shift = number - node.number
        proposal = dataclasses.replace(node.proposal, parents=tuple(p + shift for p in node.parents))
        result = dataclasses.replace(node.result, proposal=proposal)
        many.append(dataclasses.replace(node, number=number, result=result))
    began = time.process_time()
    pages = [views.trajectory(many).to_json(), views.tree(many).to_json(), views.candidate_table(many).html]
    assert time.process_time() - began < 10
    assert sum(map(len, pages)) < 20e6 - 5e6  # plotly.js takes five


def test_a_confirmed_node_keeps_the_ratio_the_search_saw_in_trajectory_and_table():
    node = next(n for n in synthetic.nodes(20) if n.fitness > 0)
    lower = {k: dataclasses.replace(i, value=i.value / 2, low=i.low / 2) for k, i in node.result.ratios.items()}
    again = dataclasses.replace(node, result=dataclasses.replace(node.result, confirmed=lower))
    (row,) = views.frame([again]).to_dict("records")
    assert row["ratio"] == node.fitness
    assert row["low"] == min(node.result.ratios.values(), key=lambda i: i.value).low
    assert again.result.ratio.value == node.fitness / 2
