"""What `store_faults.py` does to a store: each part damages or kills something and answers rows of figures."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernelevolve import errors, operators
from kernelevolve.records import Proposal, Selection, to_dict
from kernelevolve.store import Workspace, journal
from kernelevolve.store.workspace import study_folder
from kernelevolve.study import Study
from kernelevolve.testing import crash, crash_loop, searching, synthetic
from kernelevolve.testing.history import History, check, compare_tables, digest

Row = dict[str, Any]
LIVES_PER_STUDY = 50


def row(figure: str, value: Any, target: str, n: int, ok: bool | None = None, note: str = "") -> Row:
    return {"figure": figure, "value": value, "target": target, "n": n,
            "ok": "" if ok is None else "yes" if ok else "no", "note": note}


def in_fork(work: Callable[[], Any]) -> Any:
    """Run in a fork and answer what it found: this process opens no database, so that it may fork again."""
    code, answer = crash_loop._fork(lambda: [work()])
    if not answer:
        raise RuntimeError(f"a check ended with exit code {code}")
    return answer[0]


def kills(folder: Path, count: int = 500, seed: int = 0) -> list[Row]:
    """SIGKILL at random instants, while the study is opened, searches, or brings its tables up to date."""
    rng = random.Random(seed)
    totals = dict.fromkeys(("acknowledged", "stored", "marked_lost", "lost", "changed", "duplicated", "partial",
                            "disordered", "differing", "early", "unkilled"), 0)
    resumed: list[float] = []
    for study in range(0, count, LIVES_PER_STUDY):
        place = folder / f"kills-{study}"
        place.mkdir()
        for _ in range(min(LIVES_PER_STUDY, count - study)):
            history = place / "history"
            told = history.stat().st_size if history.exists() else 0
            pid = os.fork()
            if pid == 0:
                try:
                    searching.search(place / "w", "s", history, steps=10**6, sync_every=5, delay_s=0.005)
                finally:
                    os._exit(1)
            time.sleep(rng.uniform(0.0, 0.6))
            os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            totals["unkilled"] += code != -signal.SIGKILL
            totals["early"] += not history.exists() or history.stat().st_size == told
        found = in_fork(lambda place=place: _settle(place))
        for name in totals:
            value = found.get(name, 0)
            totals[name] += len(value) if isinstance(value, list) else value
        resumed += [float(s) for s in re.findall(r"^ok opened \d+ (\S+)$", (place / "history").read_text(), re.M)]
        print(f"{study + LIVES_PER_STUDY} kills: {totals}", flush=True)
        shutil.rmtree(place)
    bad = totals["lost"] + totals["changed"]
    note = (f"{totals['acknowledged']} acknowledged, {totals['stored']} stored, of which {totals['marked_lost']} "
            f"marked lost; {totals['early']} kills before the study was open")
    zero = [("Acknowledged nodes lost in random kills", bad, count, note),
            ("Nodes recorded twice in random kills", totals["duplicated"], count, ""),
            ("Nodes without their texts, or numbers without a node, in random kills", totals["partial"], count, ""),
            ("Nodes out of order in random kills", totals["disordered"], count, ""),
            ("Tables that differ from a rebuild after random kills", totals["differing"], count, "")]
    rows = [row(figure, value, "0", n, value == 0, note) for figure, value, n, note in zero]
    if totals["unkilled"]:
        rows.append(row("Searches that ended by themselves before their kill", totals["unkilled"], "0", count, False))
    resumed.sort()
    rows.append(row("Time to resume after a random kill, p50 / p99 (s)",
                    f"{resumed[len(resumed) // 2]:.3f} / {resumed[int(len(resumed) * 0.99)]:.3f}", "", len(resumed),
                    note=f"studies of up to about {totals['stored'] * LIVES_PER_STUDY // count} nodes"))
    return rows


def _settle(place: Path) -> Row:
    """The last life, then all that is to be known about a study."""
    searching.search(place / "w", "s", place / "history", steps=1)
    space = Workspace(place / "w")
    found = check(space, "s", place / "history")
    for fault in found.faults[:5]:
        print(fault, flush=True)
    return {**vars(found), "differing": compare_tables(space)}


def points(folder: Path) -> list[Row]:
    """Every crash point of a short study, half of them with a second crash while it goes on."""
    outcomes = list(crash_loop.crash_everywhere(folder / "points"))
    faults = [f for o in outcomes for f in o["faults"]]
    unkilled = sum(o["codes"][0] != -signal.SIGKILL for o in outcomes)
    note = f"{sum(len(o['codes']) == 3 for o in outcomes)} of them crashed a second time while going on"
    return [row("Crash points after which something acknowledged was lost, doubled, partial or out of order",
                len(faults) + unkilled, "0", len(outcomes), not faults and not unkilled, note)]


def workers(folder: Path, problem: str = "cpu/map_id", stride: int = 4, most: int = 8) -> list[Row]:
    """The real search, killed at its n-th step at a worker; then it goes on. Until one has no such step any more."""
    space, wrong, orphans, told, count = Workspace(folder / "workers"), 0, 0, 0, 0
    for number in range(1, stride * most, stride):
        name = f"w{number}"
        command = [sys.executable, "-m", "kernelevolve", "run", problem, "--steps", "2", "--name", name,
                   "--workspace", str(space.path)]
        environment = {**os.environ, crash.VARIABLE: f"worker:{number}", "KILLED_BY_STORE_FAULTS": name}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        acknowledged = {int(n) for n in re.findall(r": \d+/\d+ node (\d+) ", done.stderr)}
        time.sleep(2.0)
        orphans += _count_processes(f"KILLED_BY_STORE_FAULTS={name}")
        if done.returncode == 0:
            break
        count += 1
        again = ["resume", name, "--steps", "1"] if name in space.studies() else ["run", problem, "--steps", "1",
                                                                                 "--name", name]
        more = subprocess.run([sys.executable, "-m", "kernelevolve", *again, "--workspace", str(space.path)],
                              capture_output=True, text=True, timeout=300)
        nodes = space.study(name).nodes
        good = acknowledged <= set(nodes) == set(range(1, len(nodes) + 1))
        good = good and done.returncode == -signal.SIGKILL and more.returncode == 0
        wrong, told = wrong + (not good), told + len(acknowledged)
        print(f"worker step {number}: {'right' if good else 'WRONG'}, exit codes {done.returncode} and "
              f"{more.returncode}, {len(acknowledged)} acknowledged, {len(nodes)} stored"
              + ("" if good else f"\n{more.stderr[-500:]}"),
              flush=True)
    return [row("Worker steps of a real search at which a kill lost something or could not be gone on from", wrong, "0",
                count, wrong == 0 < count, f"{problem}; {told} nodes acknowledged before the kills"),
            row("Processes left 2 s after a search was killed at a worker step", orphans, "0", count, orphans == 0)]


def _count_processes(mark: str) -> int:
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += mark.encode() in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
    return found


def flips(folder: Path, count: int = 2000, seed: int = 0) -> list[Row]:
    """One flipped byte: in the journal, in the database's file, in its write-ahead log."""
    place = folder / "flips"
    place.mkdir()
    searching.search(place / "w", "s", place / "history", steps=20)
    space = Workspace(place / "w")
    (path,) = (space.journal_path / study_folder("s")).glob("*.jsonl")
    content, whole = path.read_bytes(), {n: digest(node) for n, node in space.study("s").nodes.items()}
    rng, unstated, wrong, low, changed, most = random.Random(seed), 0, 0, 0, 0, 0
    places = [rng.randrange(len(content)) for _ in range(count)]
    places += [at for at, byte in enumerate(content) if byte == ord("\n")]  # the rarest and the worst
    for where in places:
        damaged = bytearray(content)
        damaged[where] ^= rng.randrange(1, 256)
        path.write_bytes(damaged)
        log = space.study("s")
        lost = content.count(b"\n") - len(journal.read_folder(path.parent).records)
        unstated += not log.state_damage()
        wrong += log.lost_records != lost
        low += log.lost_records < lost
        changed += any(whole[n] != digest(node) for n, node in log.nodes.items())
        most = max(most, lost)
    path.write_bytes(content)
    tried = len(places)
    rows = [row("Flipped bytes in the journal after which the loss was not stated", unstated, "0", tried, unstated == 0,
                f"at most {most} records lost by one byte; the study opened every time"),
            row("Flipped bytes in the journal that changed a node", changed, "0", tried, changed == 0),
            row("Flipped bytes in the journal whose lost records were counted too low", low, "0", tried, low == 0,
                f"{wrong} times it was not exact: after the last readable line nothing tells how many there were")]
    command = [sys.executable, "-m", "kernelevolve.testing.damage", str(space.path), str(seed), str(count // 10)]
    sync = [sys.executable, "-c", f"from kernelevolve.store import Workspace; Workspace({str(space.path)!r}).sync()"]
    subprocess.run(sync, check=True)
    database = space.database().path
    rows += _flip_tables("the database's file", [*command, str(database)])
    with Study.resume("s", workspace=space, operator=searching.Writer(), evaluator=searching.Judge()) as study:
        for _ in range(10):
            study.step()
    subprocess.run(sync, env={**os.environ, crash.VARIABLE: "database.committed:1"})
    return rows + _flip_tables("its write-ahead log", [*command, str(database), f"{database}.wal"])


def _flip_tables(what: str, command: list[str]) -> list[Row]:
    done = subprocess.run(command, capture_output=True, text=True)
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = sum(bool(differing) for _, differing, _ in outcomes) + (done.returncode != 0)
    anew = sum(anew for _, _, anew in outcomes)
    good = wrong == 0 < len(outcomes)
    return [row(f"Flipped bytes in {what} that changed an answer", wrong, "0", len(outcomes), good,
                f"made anew from the journal {anew} times")]


def size(folder: Path, count: int = 10_000) -> list[Row]:
    """Resume and rebuild of a study of 10,000 nodes."""
    space = write_long_study(folder / "size", count)

    def measure() -> list[float]:
        began = time.perf_counter()
        with Study.resume("long", workspace=space, operator=searching.Writer(), evaluator=searching.Judge()) as study:
            assert len(study.tree) == count
            resumed = time.perf_counter()
        rebuilt = time.perf_counter()
        assert space.rebuild() > count
        end = time.perf_counter()
        assert space.sync() == 0
        return [resumed - began, end - rebuilt, time.perf_counter() - end]

    resume_s, rebuild_s, sync_s = (min(v) for v in zip(*(in_fork(measure) for _ in range(3)), strict=True))
    size_mb = sum(p.stat().st_size for p in space.journal_path.rglob("*.jsonl")) / 2**20
    note = f"journal of {size_mb:.0f} MB; best of 3"
    return [row(f"Resume of {count:,} nodes (s)", f"{resume_s:.1f}", "< 5", count, resume_s < 5, note),
            row(f"Journal to DuckDB, {count:,} nodes (s)", f"{rebuild_s:.1f}", "< 30", count, rebuild_s < 30, note),
            row("Sync without news, with the check of the tables (s)", f"{sync_s:.3f}", "", count, note=note)]


def write_long_study(path: Path, count: int) -> Workspace:
    """A study with records like a real search's: eight a node, 5 kB a verdict, sources of a hundred lines."""
    space, judge = Workspace(path), searching.Judge()
    writer = space.create_study({
        "name": "long", "problem": to_dict(synthetic.problem()), "platform": "cpu", "operator": "made-up", "seed": 0,
        "policy": {"name": "greedy", "parameters": {}}, "rules": "strict", "settings": {}, "versions": {}})
    body = "".join(f"    def part_{i}(self, x):\n        return self.scale[{i}] * x + {i}\n\n" for i in range(30))
    made = _numbered(synthetic.nodes(1000))
    for number in range(1, count + 1):
        node = next(made)
        parents = tuple(p for p in node.parents if p < number)
        selection = Selection(parents, "the fastest so far is worth 3 more tries", "greedy")
        source = synthetic.source(number) + body
        proposal = Proposal(source, "cpp", "made-up", rationale=f"try {number}", parents=parents, selection=selection)
        result = node.result if node.result.correct else judge.evaluate(proposal)
        verdict = type(node)(number, type(result)(**{**_fields(result), "proposal": proposal}), node.fitness, node.time)
        writer.append("ask", {"number": number, "selection": to_dict(selection)})
        writer.append_proposal(number, proposal)
        for stage in ("start", "build", "check", "time", "profile"):
            writer.append("stage", {"number": number, "stage": stage, "seconds": 0.1, "status": "correct"})
        writer.append_node(verdict, operators.stamped_keys(proposal))
    writer.close()
    return space


def _fields(record: Any) -> Row:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _numbered(nodes: list[Any]) -> Iterator[Any]:
    while True:
        yield from nodes


def disk(folder: Path, rounds: int = 25) -> list[Row]:
    """A tmpfs of 48 MB filled up to a different last bit each time, in a mount namespace of its own."""
    place = folder / "small"
    place.mkdir()
    script = f"mount -t tmpfs -o size=48m none {place} && exec {sys.executable} {__file__} {place} {folder} {rounds}"
    for way in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        done = subprocess.run([*way, "sh", "-c", script], capture_output=True, text=True, timeout=900)
        if done.returncode == 0:
            found = json.loads(done.stdout.splitlines()[-1])
            return [row("Acknowledged nodes lost on a full disk", found["lost"], "0", rounds, found["lost"] == 0,
                        f"{found['acknowledged']} acknowledged; the run paused {found['paused']} times, tables could "
                        f"not be brought up to date or made anew {found['unsynced']} times; it went on every time"),
                    row("Tables that differ from a rebuild after a full disk", found["differing"], "0", rounds,
                        found["differing"] == 0)]
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return [row("Acknowledged nodes lost on a full disk", "not run", "0", 0, note=f"no tmpfs can be mounted: {reason}")]


def fill_up(small: Path, elsewhere: Path, rounds: int) -> Row:
    """Inside that namespace: fill, search until the disk refuses, free, go on, look."""
    rng, history, ballast = random.Random(0), elsewhere / "disk-history", small / "ballast"
    space, told = Workspace(small / "w"), History(elsewhere / "disk-history")
    counts = {"paused": 0, "unsynced": 0, "lost": 0, "differing": 0, "acknowledged": 0}
    for turn in range(rounds):
        with Study.open_or_create(synthetic.problem(), name="s", workspace=space, platform="cpu",
                                  operator=searching.Writer(), evaluator=searching.Judge()) as study:
            for _ in range(60 if turn % 2 else 1):  # news for the tables, which grow by 256 kB
                step(study, told)
            left = rng.randrange(0, 400_000)
            with ballast.open("ab", buffering=0) as file:
                while (room := os.statvfs(small).f_bavail * os.statvfs(small).f_frsize - left) > 0:
                    file.write(bytes(min(room, 2**20)))
            try:
                for make in (space.sync, space.rebuild) if turn % 2 else ():
                    try:
                        make()
                    except errors.StoreError as error:
                        counts["unsynced"] += "full" in str(error)
                for _ in range(2000):
                    step(study, told)
            except errors.StoreError as error:
                counts["paused"] += "The disk is full" in str(error)
            ballast.unlink()
        with Study.resume("s", workspace=space, operator=searching.Writer(), evaluator=searching.Judge()) as study:
            step(study, told)
        found = check(space, "s", history)
        counts["lost"] += len(found.faults)
        counts["differing"] += len(compare_tables(space))
        counts["acknowledged"] = found.acknowledged
    return counts


def step(study: Study, told: History) -> None:
    node = study.step()
    told.ok(f"node {node.number}", digest(node))


if __name__ == "__main__":
    print(json.dumps(fill_up(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))
