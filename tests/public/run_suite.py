"""Runs the test suite of a checkout of aws-neuron/nki-library on tilelang; see tests/public/README.md.

    python -m tests.public.run_suite --library DIR [--suite cumsum ...] [--fast] [--all] [--sample N] [--timeout S]

Prints a table per suite and the kinds of failures, and saves both. Exit code 1 when a case fails, or none ran.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.public.suite_checkout import prepare

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The most self-contained kernels first.
ORDER = (
    "cumsum tp_broadcast cross_partition_copy tensor_view cascaded_max cascaded_max_utils rope rope_hf "
    "depthwise_conv1d conv1d topk find_nonzero_indices find_nonzero_indices_with_count layernorm_tkg "
    "rmsnorm_tkg gen_mask_tkg router_topk output_proj_tkg"
).split()
# What differs between cases of one failure kind: numbers, quoted names, addresses.
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?")


@dataclass
class Tally:
    """Outcomes of one suite; seconds are of the cases, not of the wall clock."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    wall: float = 0.0
    errors: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, record: dict[str, Any]) -> None:
        """Counts one case."""
        self.counts[record["outcome"]] += 1
        self.seconds += record["seconds"]
        if record["outcome"] == "failed":
            self.errors[_VARYING.sub("#", record["error"])].append(record)


def suites(library: Path) -> dict[str, Path]:
    """Suite name to its test file below `library`, in the order in which they run."""
    files = {}
    for path in sorted((library / "test/integration").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "def test_" in text:
            files[path.stem.removeprefix("test_")] = path.relative_to(library)
    return dict(sorted(files.items(), key=lambda item: ORDER.index(item[0]) if item[0] in ORDER else len(ORDER)))


def run(library: Path, test: Path, results: Path, log: Path, options: argparse.Namespace) -> Tally:
    """Runs one test file of the prepared copy in worker processes and reads its outcomes."""
    environment = dict(os.environ)
    paths = [str(HERE / "shims"), str(library / "src"), str(library), str(ROOT), environment.get("PYTHONPATH", "")]
    environment |= {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        # Our shims of the compiler's packages are not to be mistaken for the real ones.
        "TILELANG_SHADOW_NKI": "1",
        "TILELANG_SUITE_RESULTS": str(results),
        "TILELANG_SUITE_TIMEOUT": str(options.timeout),
        "TILELANG_SUITE_SAMPLE": str(options.sample),
        "NKILIB_SIMULATION_RUN_ALL": "1" if options.all else "0",
        "NEURON_PYTHONHASHSEED": "0",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", str(test), "--test-mode", "simulation", "-p", "suite_plugin"]
    command += ["-n", str(options.n), "-q", "--force-local-cleanup", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-c", "test/pytest.ini", "--rootdir", ".", "--platform-target", options.target]
    command += ["--output-directory", str(results.parent / "output"), "-W", "ignore"]
    command += ["-m", "fast"] if options.fast else []
    command += ["-k", options.k] if options.k else []
    environment["PYTHONPATH"] += os.pathsep + str(HERE)
    start = time.perf_counter()
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.run(command, cwd=library, env=environment, stdout=file, stderr=subprocess.STDOUT).returncode
    tally = Tally(wall=time.perf_counter() - start)
    if results.exists():
        for line in results.read_text(encoding="utf-8").splitlines():
            tally.add(json.loads(line))
    if code not in (0, 1, 5) and not tally.errors:
        tally.add({"case": str(test), "outcome": "failed", "seconds": 0.0, "error": f"pytest ended with {code}: {log}"})
    return tally


def report(name: str, tally: Tally) -> str:
    """One row of the table."""
    counts = tally.counts
    numbers = (sum(counts.values()), counts["passed"], counts["failed"], counts["skipped"])
    return f"{name:36}" + "".join(f"{number:9d}" for number in numbers) + f"{tally.seconds:10.1f}{tally.wall:10.1f}"


def failures(name: str, tally: Tally) -> str:
    """The kinds of failures of a suite, the most frequent first, each with one case."""
    lines = []
    for _, records in sorted(tally.errors.items(), key=lambda item: -len(item[1])):
        lines += [f"{len(records):5d} x {name}: {records[0]['error']}", f"        {records[0]['case']}"]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True, help="checkout of aws-neuron/nki-library")
    parser.add_argument("--suite", nargs="+", action="extend", help="suites to run; default: all")
    parser.add_argument("--fast", action="store_true", help="only cases that the library marks fast")
    parser.add_argument("--all", action="store_true", help="also cases that the harness skips as too large to simulate")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a case may take")
    parser.add_argument("--target", default="trn2", help="trn2 or trn3")
    parser.add_argument("-n", type=int, default=2, help="worker processes, at least 1")
    parser.add_argument("--sample", type=int, default=0, help="run at most this many cases a suite, evenly spaced")
    parser.add_argument("-k", help="only cases whose name matches, as in pytest")
    parser.add_argument("--output", type=Path, help="directory of tables and logs; default: a new temporary one")
    options = parser.parse_args()
    if options.n < 1 or options.timeout <= 0 or options.sample < 0:
        parser.error("-n is at least 1, --timeout is positive and --sample is not negative")
    return options


def main() -> int:
    """Runs the suites that the arguments name."""
    options = arguments()
    output = (options.output or Path(tempfile.mkdtemp(prefix="nki_library_"))).resolve()
    output.mkdir(parents=True, exist_ok=True)
    library = prepare(options.library.resolve(), output / "library")
    known = suites(library)
    unknown = set(options.suite or ()) - set(known)
    if unknown:
        sys.exit(f"no suite named {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    header = f"{'suite':36}" + "".join(f"{title:>9}" for title in ("cases", "passed", "failed", "skipped"))
    header += f"{'seconds':>10}{'wall s':>10}"
    print(f"target {options.target}; logs and tables in {output}\n{header}", flush=True)
    tallies = {}
    for name in options.suite or known:
        results = output / f"{name}.jsonl"
        results.unlink(missing_ok=True)
        tallies[name] = run(library, known[name], results, output / f"{name}.log", options)
        text = f"{header}\n{report(name, tallies[name])}\n{failures(name, tallies[name])}\n"
        (output / f"{name}.txt").write_text(text, encoding="utf-8")
        print(report(name, tallies[name]), flush=True)
    total = Tally()
    for tally in tallies.values():
        total.counts += tally.counts
        total.seconds += tally.seconds
        total.wall += tally.wall
    kinds = "\n".join(text for name, tally in tallies.items() if (text := failures(name, tally)))
    print(report("total", total) + (f"\n\nfailures\n{kinds}" if kinds else ""))
    table = "\n".join(
        [header, *(report(name, tally) for name, tally in tallies.items()), report("total", total), "", kinds]
    )
    (output / "table.txt").write_text(table + "\n", encoding="utf-8")
    return int(total.counts["failed"] > 0 or not total.counts["passed"])


if __name__ == "__main__":
    sys.exit(main())
