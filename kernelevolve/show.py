"""How the nouns of the loop draw themselves: a card in a notebook, a line in a terminal.

Sources, details and rationales come from candidates and models: everything is escaped, long texts fold or are cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelevolve.records import Context, Node, Proposal, Result, Selection, Status
from kernelevolve.views.html import Html, escape, number, ratio

if TYPE_CHECKING:
    from kernelevolve.accounts import Run
    from kernelevolve.session import Session

_DETAIL_LIMIT = 600


def html(record: Any) -> str:
    """A card for a Selection, Context, Proposal, Result or Node."""
    title, rows, more = _describe(record)
    return _card(title, rows, more)


def text(record: Any) -> str:
    """One line for the same."""
    title, rows, _ = _describe(record)
    shown = "; ".join(f"{k} {v}" for k, v in rows[:3] if v)
    line = f"{title}: {shown}" if shown else title
    return f"<{_cut(' '.join(line.split()), 240)}>"


def run_html(run: Run) -> str:
    """A card for what a run did, with where its time went."""
    spent = ", ".join(f"{k} {v:.1f} s" for k, v in sorted(run.seconds.items(), key=lambda kv: -kv[1]) if v >= 0.05)
    best = f"node {run.best} at {number(run.ratio)}× the reference" if run.best else "nothing correct yet"
    rows = [("ended", run.reason), ("best", best), ("nodes", _counts(run.counts)), ("time", spent),
            ("framework", f"{run.framework_share:.1%} of the wall time outside build, check, time and profile")]
    return _card(f"{run.steps} steps in {run.wall_s:.1f} s", rows)


def study_html(study: Session) -> str:
    """A card for a study."""
    best = study.tree.best
    leader = f"node {best.number} at {number(study.tree.score(best.number))}×" if best else "nothing correct yet"
    rows = [("problem", study.problem.id), ("best", leader), ("nodes", _counts(study.tree.counts())),
            ("policy", repr(study.policy)), ("operator", study.operator.name), ("rules", study.rules),
            ("platform", study.platform), ("stored in", str(study.workspace.path))]
    return _card(f"Study {study.name}", rows)


def _describe(record: Any) -> tuple[str, list[tuple[str, str]], str]:
    """Title, rows and further HTML of a record."""
    match record:
        case Selection():
            what = "an independent draft" if record.is_draft else f"expand {_numbers(record.parents)}"
            return f"Selection, {what}", [("because", record.reason), ("policy", record.policy),
                                          ("memory", record.memory)], ""
        case Context():
            seen = _numbers(tuple(n.number for n in record.history)) or "nothing"
            diagnosis = record.diagnosis.summary if record.diagnosis else ""
            return "Context", [("from", _numbers(record.selection.parents) or "nothing"), ("sees", seen),
                               ("diagnosis", diagnosis), ("hints", " / ".join(record.hints)),
                               ("notes", ", ".join(record.notes)), ("tried", f"{len(record.tried)} keys")], ""
        case Proposal():
            return _describe_proposal(record)
        case Result():
            return f"Result, {record.status.value}", _result_rows(record), _fold("log", record.log)
        case Node():
            rows = [("move", record.proposal.move), *_result_rows(record.result),
                    ("from", _numbers(record.parents)), ("why", record.proposal.rationale)]
            return f"Node {record.number}, {record.status.value}", rows, _fold("source", record.source)
    raise TypeError(f"no card for {type(record).__name__}")


def _describe_proposal(proposal: Proposal) -> tuple[str, list[tuple[str, str]], str]:
    if proposal.failure is not None:
        title, rows = f"Proposal, {proposal.failure.value}", [("because", proposal.failure_detail)]
        return title, [*rows, ("operator", proposal.operator)], ""
    lines = len(proposal.source.splitlines())
    rows = [("move", proposal.move), ("why", proposal.rationale), ("operator", proposal.operator),
            ("from", _numbers(proposal.parents) or "nothing"), ("written in", f"{proposal.write_s:.2f} s")]
    if proposal.tokens_in or proposal.tokens_out:
        rows.append(("tokens", f"{proposal.tokens_in} in, {proposal.tokens_out} out, {proposal.cost_usd:.4f} USD"))
    return f"Proposal, {lines} lines of {proposal.language}", rows, _fold("source", proposal.source)


def _result_rows(result: Result) -> list[tuple[str, str]]:
    rows = [(f"× {name}", ratio(interval)) for name, interval in result.ratios.items()]
    own = next((t for t in result.timings if t.name == "candidate"), None)
    if own is not None:
        bound = f", physical bound {number(result.bound_ms)} ms" if result.bound_ms > 0 else ""
        rows.append(("time", f"{number(own.median_ms)} ms{bound}{'' if result.measured else ' (modelled)'}"))
    if result.confirmations:  # the ratios above are of the search's own session
        again = ", ".join(number(i.value) for i in result.confirmations)
        rows.append(("again", f"{again} × in {len(result.confirmations)} fresh processes"))
    if result.duplicate_of is not None and result.status is Status.DUPLICATE:
        rows.append(("same as", f"node {result.duplicate_of}"))
    if result.library_ops:
        rows.append(("library", ", ".join(f"{name} {n}" for name, n in list(result.library_ops.items())[:12])))
    if result.findings:
        rows.append(("findings", _cut("; ".join(result.findings), _DETAIL_LIMIT)))
    if result.detail:
        rows.append(("detail", _cut(result.detail, _DETAIL_LIMIT)))
    if result.diagnosis:
        rows.append(("diagnosis", result.diagnosis.summary))
    stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in result.stage_s.items())
    return [*rows, ("stages", stages), ("rules", result.rules)]


def _card(title: str, rows: list[tuple[str, str]], more: str = "") -> str:
    body = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows if v)
    return Html(f"<p><b>{escape(title)}</b></p><dl>{body}</dl>{more}")._repr_html_()


def _fold(title: str, content: str) -> str:
    if not content:
        return ""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(content)}</pre></details>"


def _numbers(numbers: tuple[int, ...]) -> str:
    if not numbers:
        return ""
    shown = ", ".join(map(str, numbers[:8])) + (" …" if len(numbers) > 8 else "")
    return f"node {shown}" if len(numbers) == 1 else f"nodes {shown}"


def _counts(counts: Any) -> str:
    return ", ".join(f"{n} {status}" for status, n in counts.items()) or "none yet"


def _cut(content: str, limit: int) -> str:
    return content if len(content) <= limit else content[: limit - 1] + "…"
