"""The first things a reader asks: how much faster, on what, is it sure, is it right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.records import Node, Result
from kernelevolve.store.log import StudyLog
from kernelevolve.views.frame import best, ranked
from kernelevolve.views.html import Html, escape, number, ratio, table
from kernelevolve.views.verdict import confirmation, verdict

NOISY = 0.1
"""A noise floor above which a report warns."""

BASELINE_NAMES = {"eager": "PyTorch eager", "compile": "torch.compile"}


def best_of(study: StudyLog) -> Node | None:
    """The study's best node: confirmed ones by their confirmations, refuted ones left out; None when there is none."""
    return best(study)


def headline(study: StudyLog) -> Html:
    """Operator, machine, ratios with their intervals, verdict against the noise floor, and whether it was confirmed."""
    nodes = list(study.nodes.values())
    top = best_of(study)
    machine = name_machine(study)
    n_ranked = sum(ranked(n) for n in nodes)
    counts = f"{n_ranked} of {len(nodes)} candidates correct and timed"
    if top is None:
        why = "no candidate yet" if not nodes else "no candidate is correct yet"
        text = f"{study.problem.id} on {machine}: {why} ({counts})."
        return Html(f"<div class='headline'><p class='verdict'>{escape(why.capitalize())}</p>"
                    f"<p>{escape(study.problem.id)} on {escape(machine)}. {escape(counts)}.</p></div>", text)
    result = top.result
    word = verdict(result.ratio, result.noise_floor)
    reference = BASELINE_NAMES.get(result.reference, result.reference)
    claim = {
        "win": f"{number(result.ratio.value if result.ratio else None)}× the fastest baseline ({reference}): a win",
        "tie": f"A tie with the fastest baseline ({reference})",
        "loss": f"No win: the fastest baseline ({reference}) is faster than the best candidate",
        "not timed": "The best candidate was not timed",
    }[word]
    confirmed = confirmation(result.confirmations, result.noise_floor)
    again = ", ".join(f"{number(c.value)}×" for c in result.confirmations)
    kind = "Measured" if result.measured else "Modelled, not measured"
    floor = result.noise_floor
    tiles = [(*ratio(result.final.get(name)).partition(" ")[::2],
              f"against {label}: {verdict(result.final.get(name), floor)}") for name, label in _baselines(result)]
    tiles += [(f"node {top.number}", "", counts),
              (f"±{number(100 * floor, 2)} %", "", "noise floor: what this machine cannot tell from nothing")]
    body = "".join(f"<div class='tile'><b>{escape(value)} <i>{escape(spread)}</i></b><span>{escape(label)}</span></div>"
                   for value, spread, label in tiles)
    sentence = (f"{kind} on {machine}; rules {result.rules}, isolation {result.isolation}. "
                f"{confirmed.capitalize()}{f' ({again})' if again else ''}.")
    return Html(f"<div class='headline'><p class='verdict'>{escape(claim)}</p><p>{escape(sentence)}</p>"
                f"{_warning(study)}<div class='tiles'>{body}</div></div>",
                f"{study.problem.id}: {claim}. {sentence} {counts}.")


def timing_table(result: Result) -> Html:
    """Each side's median and the ratio of each baseline to the candidate, with its verdict."""
    rows = []
    for t in result.timings:
        interval = result.ratios.get(t.name)
        rows.append((BASELINE_NAMES.get(t.name, t.name), number(t.median_ms), len(t.samples_ms), len(set(t.rounds)),
                     ratio(interval), verdict(interval, result.noise_floor) if interval else "–"))
    bound = f" Physical bound: {number(result.bound_ms)} ms." if result.bound_ms else ""
    columns = ("side", "median ms", "samples", "rounds", "baseline / candidate [95 %]", "verdict")
    caption = (f"All samples of one interleaved session are included. A win needs an interval above 1 and a ratio "
               f"more than the noise floor of {number(100 * result.noise_floor, 2)} % above 1.{bound}")
    return Html(table(columns, rows, numeric=columns[1:5], caption=caption), repr(rows))


def error_table(result: Result) -> Html:
    """The evidence that the best is right: each output's worst error over trials against its limit."""
    if not result.errors:
        return Html("<p class='soft'>No error was recorded for this candidate.</p>", "no errors recorded")
    rows = [(e.leaf, e.trial, number(e.error), number(e.reference_error), number(e.limit), number(e.max_abs),
             "within" if e.passed else "beyond") for e in result.errors]
    columns = ("output", "worst trial", "error", "PyTorch's own error", "limit", "largest difference", "verdict")
    caption = (f"Rules: {result.rules}. Errors are relative to a float64 reference, norm of the difference over norm "
               f"of the truth. {sum(e.passed for e in result.errors)} of {len(result.errors)} outputs within"
               " the limit.")
    return Html(table(columns, rows, numeric=(columns[0], *columns[2:6]), caption=caption), repr(rows))


def name_machine(study: StudyLog) -> str:
    """The machine of the best or latest evaluation, as far as the environment record names it."""
    facts = facts_of(study)
    name = next((str(facts[k]) for k in ("device", "device_name", "cpu", "model", "name") if facts.get(k)), "")
    return name or str(study.header.get("platform") or "unnamed machine")


def facts_of(study: StudyLog) -> Mapping[str, Any]:
    """The environment that the best node was evaluated in, else the latest; empty when there is none."""
    known = environments_of(study)
    top = best_of(study)
    if top is not None and top.result.environment in known:
        return known[top.result.environment]
    return next(reversed(known.values()), {})


def environments_of(study: StudyLog) -> dict[str, Mapping[str, Any]]:
    """Every environment that was recorded, by its id: in a record of its own or with a baseline."""
    found: dict[str, Mapping[str, Any]] = dict(study.environments)
    for baseline in study.baselines:
        environment = baseline.get("environment") or {}
        if isinstance(environment, Mapping) and environment.get("id"):
            found.setdefault(str(environment["id"]), environment)
    return found


def _baselines(result: Result) -> Sequence[tuple[str, str]]:
    names = [*BASELINE_NAMES, *(n for n in result.final if n not in BASELINE_NAMES)]
    return [(n, BASELINE_NAMES.get(n, n)) for n in names]


def _warning(study: StudyLog) -> str:
    top = best_of(study)
    notes = [study.state_damage()] if study.state_damage() else []
    if top is not None and top.result.noise_floor > NOISY:
        notes.append("the machine was too noisy for a verdict on small differences; measure again when it is idle")
    if study.problem.weak:
        notes.append(f"this problem is weak: {study.problem.weak}")
    return "".join(f"<p><strong>Note:</strong> {escape(n)}.</p>" for n in notes)


