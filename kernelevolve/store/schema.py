"""The tables of `kernelevolve.duckdb`, and how journal records become their rows.

Every reported ratio can be recomputed from `samples` alone; this is the query behind the view `ratio`:

    WITH per_round AS (
        SELECT study, node, session, side, round, median(ms) AS ms FROM samples GROUP BY ALL)
    SELECT study, node, session, b.side AS baseline, median(b.ms / c.ms) AS ratio
    FROM per_round b JOIN per_round c USING (study, node, session, round)
    WHERE c.side = 'candidate' AND b.side <> 'candidate' GROUP BY ALL

`session` is "evaluate" for the measurement that gave the verdict and "confirm …" for each one in fresh processes;
`node` 0 is the problem itself (baselines measured before any candidate).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kernelevolve.store.journal import Record

VERSION = 2

TABLES: dict[str, str] = {
    "meta": "version INTEGER",
    # How far each journal file has been imported, where its last line began, and that line's checksum.
    "imports": (
        "file VARCHAR PRIMARY KEY, study VARCHAR, bytes BIGINT, lines BIGINT, next_seq BIGINT, lost BIGINT, "
        "last_at BIGINT, crc VARCHAR"
    ),
    # Rows of each table after the last import: what is fewer now was lost.
    "totals": "name VARCHAR, rows BIGINT",
    "studies": (
        "study VARCHAR PRIMARY KEY, problem VARCHAR, code_hash VARCHAR, platform VARCHAR, operator VARCHAR, "
        "policy VARCHAR, rules VARCHAR, seed BIGINT, settings JSON, versions JSON, header JSON, time VARCHAR"
    ),
    # One row per study: a file of the same id may have changed between two of them.
    "problems": (
        "study VARCHAR PRIMARY KEY, problem VARCHAR, code_hash VARCHAR, suite VARCHAR, suite_version VARCHAR, "
        "path VARCHAR, source VARCHAR, weak VARCHAR, bytes_min BIGINT, flops BIGINT, inputs JSON, outputs JSON"
    ),
    "nodes": (
        "study VARCHAR, node BIGINT, status VARCHAR, fitness DOUBLE, detail VARCHAR, operator VARCHAR, move VARCHAR, "
        "rationale VARCHAR, language VARCHAR, own_kernels BIGINT, source_sha256 VARCHAR, log_sha256 VARCHAR, "
        "profile_sha256 VARCHAR, genome JSON, policy VARCHAR, reason VARCHAR, memory VARCHAR, numbers JSON, "
        "tokens_in BIGINT, tokens_out BIGINT, cost_usd DOUBLE, write_s DOUBLE, duplicate_of BIGINT, time VARCHAR"
    ),
    "edges": "study VARCHAR, parent BIGINT, child BIGINT, place BIGINT",
    "evaluations": (
        "study VARCHAR, node BIGINT, session VARCHAR, status VARCHAR, rules VARCHAR, platform VARCHAR, "
        "isolation VARCHAR, environment VARCHAR, measured BOOLEAN, noise_floor DOUBLE, bound_ms DOUBLE, "
        "baseline VARCHAR, ratio DOUBLE, low DOUBLE, high DOUBLE, bottleneck VARCHAR, diagnosis VARCHAR, time VARCHAR"
    ),
    "samples": (
        "study VARCHAR, node BIGINT, session VARCHAR, side VARCHAR, round BIGINT, sample BIGINT, ms DOUBLE, "
        "inner_repeats BIGINT"
    ),
    # Numbers with a name: "ratio.eager", "stage.build_s", "error.0", "diagnosis.…".
    "metrics": "study VARCHAR, node BIGINT, name VARCHAR, value DOUBLE",
    # Filled by operators that talk to a model.
    "exchanges": (
        "study VARCHAR, node BIGINT, turn BIGINT, client VARCHAR, model VARCHAR, request_sha256 VARCHAR, "
        "reply_sha256 VARCHAR, tokens_in BIGINT, tokens_out BIGINT, cost_usd DOUBLE, seconds DOUBLE, time VARCHAR"
    ),
    # Filled when notes or earlier studies are shown to a writer.
    "retrievals": "study VARCHAR, node BIGINT, place BIGINT, note VARCHAR, score DOUBLE, shown BOOLEAN, time VARCHAR",
    "environments": "study VARCHAR, environment VARCHAR, data JSON, time VARCHAR",
    "interventions": (
        "study VARCHAR, act VARCHAR, node BIGINT, arguments JSON, time VARCHAR, writer VARCHAR, seq BIGINT"
    ),
    "runs": "study VARCHAR, reason VARCHAR, steps BIGINT, wall_s DOUBLE, data JSON, time VARCHAR",
}

VIEWS: dict[str, str] = {
    "ratio": """
        WITH per_round AS (
            SELECT study, node, session, side, round, median(ms) AS ms FROM samples GROUP BY ALL)
        SELECT study, node, session, b.side AS baseline, median(b.ms / c.ms) AS ratio, count(*) AS rounds
        FROM per_round b JOIN per_round c USING (study, node, session, round)
        WHERE c.side = 'candidate' AND b.side <> 'candidate' GROUP BY ALL""",
    # What is derived is not stored: a node's stage follows from its parents' verdicts.
    "stages": """
        SELECT n.study, n.node,
            CASE WHEN count(p.node) = 0 THEN 'draft'
                 WHEN bool_or(p.status <> 'correct') THEN 'debug' ELSE 'improve' END AS stage
        FROM nodes n LEFT JOIN edges e ON e.study = n.study AND e.child = n.node
        LEFT JOIN nodes p ON p.study = e.study AND p.node = e.parent GROUP BY n.study, n.node""",
    # Per study the fastest correct node, by its confirmations where it has some.
    "best": """
        WITH score AS (
            SELECT n.study, n.node, n.fitness, median(c.ratio) AS confirmed,
                coalesce(median(c.ratio), n.fitness) AS score
            FROM nodes n LEFT JOIN evaluations c
                ON c.study = n.study AND c.node = n.node AND c.session LIKE 'confirm%' AND c.status = 'correct'
            WHERE n.status = 'correct' AND NOT EXISTS (
                SELECT 1 FROM evaluations r
                WHERE r.study = n.study AND r.node = n.node AND r.session LIKE 'confirm%' AND r.status <> 'correct')
            GROUP BY n.study, n.node, n.fitness)
        SELECT study, arg_max(node, (score, -node)) AS node, max(score) AS ratio,
            arg_max(confirmed, (score, -node)) IS NOT NULL AS confirmed
        FROM score WHERE score > 0 GROUP BY study""",
}

Row = tuple[str, dict[str, Any]]


def rows(record: Record, study: str) -> Iterator[Row]:
    """The table rows that one journal record adds: pairs of table name and values by column."""
    make = _MAKERS.get(record.kind)
    if make is not None:
        for table, row in make(record, study):
            yield table, {column: _clean(value) for column, value in row.items()}


def _study(record: Record, study: str) -> Iterator[Row]:
    d = record.data
    p = d["problem"]
    common = {"study": study, "problem": p["id"], "code_hash": p["code_hash"]}
    header = {k: v for k, v in d.items() if k != "problem"}
    columns = ("platform", "operator", "policy", "rules", "seed")
    yield "studies", {
        **common, **{k: _text(d.get(k)) for k in columns}, "settings": _json(d.get("settings")),
        "versions": _json(d.get("versions")), "header": _json(header), "time": record.time,
    }
    yield "problems", {
        **common, **{k: p.get(k) for k in ("suite", "suite_version", "path", "source", "weak", "bytes_min", "flops")},
        "inputs": _json(p.get("inputs")), "outputs": _json(p.get("outputs")),
    }


def _node(record: Record, study: str) -> Iterator[Row]:
    d = record.data
    number, result = d["number"], d["result"]
    p = result["proposal"]
    selection = p.get("selection") or {}
    key = {"study": study, "node": number}
    copied = ("operator", "move", "rationale", "language", "own_kernels", "source_sha256", "tokens_in", "tokens_out",
              "cost_usd", "write_s")
    yield "nodes", {
        **key, "status": result["status"], "fitness": _number(d["fitness"]), "detail": result["detail"],
        **{k: p.get(k) for k in copied}, "log_sha256": result.get("log_sha256"),
        "profile_sha256": result.get("profile_sha256"), "genome": _json(p.get("genome")),
        **{k: selection.get(k) for k in ("policy", "reason", "memory")}, "numbers": _json(selection.get("numbers")),
        "duplicate_of": result.get("duplicate_of"), "time": d["time"],
    }
    for place, parent in enumerate(p["parents"]):
        yield "edges", {"study": study, "parent": parent, "child": number, "place": place}
    ratios = result["ratios"]
    reference = min(ratios, key=lambda name: _number(ratios[name]["value"]), default=None)
    diagnosis = result.get("diagnosis") or {}
    verdict = ("status", "rules", "platform", "isolation", "environment", "measured", "noise_floor", "bound_ms")
    yield "evaluations", {
        **key, "session": "evaluate", **{k: result.get(k) for k in verdict}, **_ratio(reference, ratios.get(reference)),
        "bottleneck": diagnosis.get("bottleneck"), "diagnosis": diagnosis.get("summary"), "time": record.time,
    }
    yield from _samples(key, "evaluate", result["timings"])
    for name, interval in ratios.items():
        yield "metrics", {**key, "name": f"ratio.{name}", "value": _number(interval["value"])}
    for name, seconds in result["stage_s"].items():
        yield "metrics", {**key, "name": f"stage.{name}_s", "value": _number(seconds)}
    for error in result["errors"]:
        yield "metrics", {**key, "name": f"error.{error['leaf']}", "value": _number(error["error"])}
        yield "metrics", {**key, "name": f"error_limit.{error['leaf']}", "value": _number(error["limit"])}
    for name, value in (diagnosis.get("numbers") or {}).items():
        yield "metrics", {**key, "name": f"diagnosis.{name}", "value": _number(value)}


def _confirm(record: Record, study: str) -> Iterator[Row]:
    d = record.data
    key = {"study": study, "node": d["number"]}
    session = f"confirm {record.writer}/{record.seq}"
    statuses = d.get("statuses") or ["correct"] * len(d["intervals"])
    baselines = d.get("baselines") or [None] * len(d["intervals"])
    for place, (interval, status, baseline) in enumerate(zip(d["intervals"], statuses, baselines, strict=True)):
        yield "evaluations", {**key, "session": f"{session}/{place}", "status": status, "time": record.time,
                              "measured": True, **_ratio(baseline, interval)}
    for place, timings in enumerate(d.get("timings", ())):
        yield from _samples(key, f"{session}/{place}", timings)


def _baseline(record: Record, study: str) -> Iterator[Row]:
    session = f"baseline {record.writer}/{record.seq}"
    again = record.data.get("again")
    yield from _samples({"study": study, "node": 0}, session, record.data["timings"])
    yield from _samples({"study": study, "node": 0}, session, [{**again, "name": "again"}] if again else [])


def _samples(key: Mapping[str, Any], session: str, timings: Any) -> Iterator[Row]:
    for timing in timings:
        for place, (ms, round_) in enumerate(zip(timing["samples_ms"], timing["rounds"], strict=True)):
            yield "samples", {**key, "session": session, "side": timing["name"], "round": round_, "sample": place,
                              "ms": _number(ms), "inner_repeats": timing["inner_repeats"]}


def _environment(record: Record, study: str) -> Iterator[Row]:
    yield "environments", {"study": study, "environment": record.data["id"], "data": _json(record.data),
                           "time": record.time}


def _act(record: Record, study: str) -> Iterator[Row]:
    arguments = {k: v for k, v in record.data.items() if k != "act"}
    yield "interventions", {"study": study, "act": record.data["act"], "node": arguments.get("number"),
                            "arguments": _json(arguments), "time": record.time, "writer": record.writer,
                            "seq": record.seq}


def _end(record: Record, study: str) -> Iterator[Row]:
    d = record.data
    yield "runs", {"study": study, "reason": d["reason"], "steps": d["steps"], "wall_s": d["wall_s"],
                   "data": _json(d), "time": record.time}


_MAKERS = {"study": _study, "node": _node, "confirm": _confirm, "baseline": _baseline, "environment": _environment,
           "act": _act, "end": _end}


def _ratio(baseline: str | None, interval: Mapping[str, Any] | None) -> dict[str, Any]:
    if interval is None:
        return {}
    return {"baseline": baseline, **{to: _number(interval[k]) for to, k in
                                     (("ratio", "value"), ("low", "low"), ("high", "high"))}}


def _number(value: Any) -> float:
    """The journal writes NaN and infinity as words."""
    return float(value)


def _text(value: Any) -> Any:
    return value.get("name", _json(value)) if isinstance(value, dict) else value


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(_clean(value), ensure_ascii=False)


def _clean(value: Any) -> Any:
    """Candidates print what they like; a table holds no zero byte and no lone surrogate (the journal keeps both)."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return [_clean(v) for v in value] if isinstance(value, (list, tuple)) else value
