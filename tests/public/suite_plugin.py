"""Pytest plugin of `tests.public.run_suite`: a time limit per case, and a line of JSON per case for the table.

Reads TILELANG_SUITE_TIMEOUT (seconds), TILELANG_SUITE_SAMPLE (cases, 0 for all) and TILELANG_SUITE_RESULTS (a path;
written by the controlling process only).
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import nki_cpu_simulator  # the harness imports `nki` before it installs its simulator
import numpy as np
import pytest

import tilelang

TIMEOUT = float(os.environ.get("TILELANG_SUITE_TIMEOUT", "300"))
_MODES = ("trace_only", "compile_only", "compile_and_infer")
SAMPLE = int(os.environ.get("TILELANG_SUITE_SAMPLE", "0"))
RESULTS = os.environ.get("TILELANG_SUITE_RESULTS")
# The harness wraps each error once or more; these lines say nothing of the cause.
_WRAPPERS = re.compile(r"^(test\.utils\.exceptions\.)?\w*(InferenceException|ValidationException)\b:?\s*")


def _infer(orchestrator: Any, kernel_under_test: Any) -> str | None:
    """Replaces the harness's simulation, which knows one rank only, for cases of several; writes each rank's outputs
    where the harness looks for them.
    """
    count = kernel_under_test.inference_args.collective_ranks
    if count <= 1:
        found: str | None = _infer.single(orchestrator, kernel_under_test)  # type: ignore[attr-defined]
        return found
    from test.utils.common_dataclasses import normalize_golden_output  # type: ignore[import-not-found]
    from test.utils.test_orchestrator import INF_ARTIFACT_DIR_NAME  # type: ignore[import-not-found]

    given = kernel_under_test.kernel_input
    inputs = [given.for_rank(rank) if hasattr(given, "for_rank") else given for rank in range(count)]
    ranks = [{key.removesuffix(".must_alias_input"): value for key, value in items.items()} for items in inputs]
    kernel = nki_cpu_simulator.nki.cpu_simulate(kernel_under_test.kernel_func)  # type: ignore[attr-defined]
    chip = kernel_under_test.compiler_input.platform_target.get_nc_gen()
    results = tilelang.launch(kernel[kernel_under_test.compiler_input.logical_nc_config], ranks, target=chip)
    root = Path(orchestrator.fs_config.artifacts_output_directory_path) / INF_ARTIFACT_DIR_NAME
    for rank, result in enumerate(results):
        golden = normalize_golden_output(kernel_under_test.validation_args.golden_output, rank)
        outputs = result if isinstance(result, (list, tuple)) else (result,)
        tensors = {
            name: np.asarray(output, dtype=expected.dtype)
            for (name, expected), output in zip(golden.items(), outputs, strict=True)
        }
        orchestrator.__dump_tensors__(str(root / f"output_worker_{rank}"), tensors, lambda name: name)
    return str(root)


def pytest_sessionstart() -> None:
    """Teaches the harness's simulation mode several ranks."""
    from test.utils.test_orchestrator import Orchestrator

    _infer.single = Orchestrator._run_simulator_inference  # type: ignore[attr-defined]
    Orchestrator._run_simulator_inference = _infer


class CaseTimeoutError(Exception):
    """A case ran longer than its limit."""


def _expired(number: int, frame: FrameType | None) -> None:
    raise CaseTimeoutError(f"longer than {TIMEOUT:g} s")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs in simulation mode also the cases marked for tracing or compilation only: the compiler is not here.

    With a sample size, keeps that many of the cases that run, evenly spaced.
    """
    if SAMPLE:
        items[:] = [item for item in items if item.get_closest_marker("skip") is None]
        size = min(SAMPLE, len(items))
        items[:] = [items[index * len(items) // size] for index in range(size)]
    for item in items:
        for node in item.listchain():
            node.own_markers[:] = [mark for mark in node.own_markers if mark.name not in _MODES]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Stops a case at its limit: by an exception, or, inside native code, by the end of the worker."""
    signal.signal(signal.SIGALRM, _expired)
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
    faulthandler.dump_traceback_later(1.5 * TIMEOUT + 10, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def first_line(report: Any) -> str:
    """The line of a failure that names its cause, numbers kept."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    lines = [_WRAPPERS.sub("", line).strip() for line in text.splitlines()]
    return next((line for line in lines if line), "?")[:300]


def pytest_runtest_logreport(report: Any) -> None:
    """Appends the outcome of a case; also its errors outside the call."""
    if RESULTS is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.when != "call" and report.outcome == "passed":
        return
    if report.when == "teardown" and report.outcome == "skipped":
        return
    error = "" if report.outcome != "failed" else first_line(report)
    record = {"case": report.nodeid, "outcome": report.outcome, "seconds": report.duration, "error": error}
    with Path(RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def pytest_collectreport(report: Any) -> None:
    """Appends a file that cannot be imported."""
    if RESULTS is None or "PYTEST_XDIST_WORKER" in os.environ or report.outcome != "failed":
        return
    text = str(report.longrepr).strip().splitlines()
    error = next((line[2:].strip() for line in reversed(text) if line.startswith("E ")), text[-1] if text else "?")
    record = {"case": report.nodeid, "outcome": "failed", "seconds": 0.0, "error": f"import: {error}"[:300]}
    with Path(RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
