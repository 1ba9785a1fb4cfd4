"""Where the numbers come from: the machine, the versions, the settings, and the query that gives the headline again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kernelevolve.report.headline import best_of, environments_of, facts_of
from kernelevolve.store.log import StudyLog
from kernelevolve.store.workspace import Workspace
from kernelevolve.views import html
from kernelevolve.views.frame import rows_of
from kernelevolve.views.html import Html, escape, number, table


def environment(study: StudyLog) -> Html:
    """What was set and what the machine is, as recorded with the study."""
    problem = study.problem
    shown = {
        "study": study.name, "begun": study.header.get("time", ""), "problem": problem.id, "suite": problem.suite,
        "suite version": problem.suite_version, "code hash": problem.code_hash,
        "inputs": ", ".join(f"{t.name or i} {t.dtype}{list(t.shape)}" for i, t in enumerate(problem.inputs)),
        **{k: study.header.get(k) for k in ("platform", "operator", "rules", "seed")},
        **dict(_flat("policy", study.header.get("policy"))),
        **dict(_flat("settings", study.header.get("settings"))),
        **dict(_flat("versions", study.header.get("versions"))),
        **dict(_flat("", facts_of(study))),
    }
    rows = [(k, v) for k, v in shown.items() if v not in (None, "", [], {})]
    more = len(environments_of(study))
    caption = f"As recorded; the environment is the best candidate's ({more} environment{'s' * (more != 1)} in all)."
    return Html(table(("what", "value"), rows, caption=caption), "\n".join(f"{k}: {v}" for k, v in rows))


def headline_query(study: StudyLog) -> str:
    """SQL that computes the best candidate's ratios from the stored samples alone; empty without a best."""
    best = best_of(study)
    if best is None:
        return ""
    name = study.name.replace("'", "''")
    return f"""WITH per_round AS (
    SELECT session, side, round, median(ms) AS ms
    FROM samples
    WHERE study = '{name}' AND node = {best.number}
    GROUP BY ALL)
SELECT b.session, b.side AS baseline, median(b.ms / c.ms) AS ratio, count(*) AS rounds
FROM per_round b JOIN per_round c USING (session, round)
WHERE b.side <> 'candidate' AND c.side = 'candidate'
GROUP BY b.session, b.side ORDER BY b.session <> 'evaluate', b.session, b.side"""  # noqa: S608 - escaped, and shown to a person


def provenance(study: StudyLog, workspace: Workspace) -> Html:
    """The headline's query and what it answers now, beside what was reported."""
    query, best = headline_query(study), best_of(study)
    if best is None:
        return Html("<p class='soft'>No headline number, no query.</p>", "no headline number")
    answer = workspace.sql(query)
    reported = best.result.ratios
    rows = [(r.session, r.baseline, number(r.ratio, 4), r.rounds,
             number(reported[r.baseline].value, 4) if r.session == "evaluate" and r.baseline in reported else "–")
            for r in rows_of(answer)]
    columns = ("session", "baseline", "ratio from samples", "rounds", "reported")
    return Html(html.source(query, language="sql").html
                + table(columns, rows, numeric=columns[2:], caption="Its answer when this report was made."),
                f"{query}\n\n{answer.to_string(index=False)}")


def profile(study: StudyLog) -> Html:
    """The best's diagnosis in words and its profile's numbers."""
    best = best_of(study)
    if best is None:
        return Html("<p class='soft'>No profile: nothing correct yet.</p>", "no profile")
    found = best.result.diagnosis
    said = "<p class='soft'>This candidate has no diagnosis.</p>"
    if found:
        said = f"<p><b>{escape(found.bottleneck)}</b>: {escape(found.summary)}</p>"
    if found and found.causes:
        said += f"<p class='soft'>Causes, most likely first: {escape(', '.join(found.causes))}</p>"
    numbers = {**(found.numbers if found else {}), **dict(_flat("", best.result.profile))}
    rows = [(k, number(float(v)) if isinstance(v, (int, float)) and not isinstance(v, bool) else v)
            for k, v in numbers.items() if v not in (None, "", [])]
    if rows:
        said += f"<details><summary>The profile in numbers ({len(rows)})</summary>"
        said += f"{table(('what', 'value'), rows)}</details>"
    return Html(said, f"{found.bottleneck}: {found.summary}" if found else "no diagnosis")


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str | int | float]]:
    """Nested mappings as dotted keys; lists as JSON."""
    if isinstance(value, Mapping):
        for k, v in value.items():
            yield from _flat(f"{prefix}.{k}" if prefix else str(k), v)
    elif value is not None and prefix:
        yield prefix, value if isinstance(value, (str, int, float)) else json.dumps(value, default=str)
