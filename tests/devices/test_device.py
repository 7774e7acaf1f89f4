"""`Device`: what the registry says against what the vendor documents say elsewhere, names, and errors."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from tilelang.devices import TARGET_NAMES, Device, estimates, get_device, registry, resolve_target
from tilelang.devices.device import TARGET_VARIABLES
from tilelang.errors import TileTypeError, TileUnsupportedError, TileValueError

CHIPS = ("trn1", "trn1n", "inf2", "trn2", "trn3")


@pytest.fixture(params=CHIPS)
def device(request: pytest.FixtureRequest) -> Device:
    return get_device(request.param)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in TARGET_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


# Consistency of the figures. The printed ones are rounded to two or three digits.


def test_bf16_peak_follows_from_clock_and_array(device: Device) -> None:
    tensor = device.engine["tensor"]
    tflops = 2 * tensor["rows"] * tensor["columns"] * device.clocks["tensor"] / 1e3
    core = device.table["core"]
    assert tflops == pytest.approx(core["peak_tflops_bf16"], rel=0.01)
    assert tflops / tensor["passes"]["fp32"] == pytest.approx(core["peak_tflops_fp32"], rel=0.02)


def test_fp8_double_row_doubles_and_mx_quadruples() -> None:
    trn2, trn3 = get_device("trn2"), get_device("trn3")
    assert trn2.table["core"]["peak_tflops_fp8"] == 2 * trn2.table["core"]["peak_tflops_bf16"]
    core = trn3.table["core"]
    assert core["peak_tflops_fp8_double_row"] == 2 * core["peak_tflops_bf16"]
    assert core["peak_tflops_mxfp8"] == pytest.approx(4 * core["peak_tflops_bf16"], rel=0.01)
    assert trn2.engine["tensor"]["fp8_double_row_k"] == 2 * trn2.engine["tensor"]["rows"]
    assert trn3.engine["tensor"]["mx_k_per_instruction"] == 4 * trn3.engine["tensor"]["rows"]


@pytest.mark.parametrize(("name", "lo", "hi"), [("trn1", 1.02, 1.04), ("trn2", 1.05, 1.15), ("trn3", 1.05, 1.15)])
def test_chip_peak_exceeds_the_sum_of_cores(name: str, lo: float, hi: float) -> None:
    table = get_device(name).table
    ratio = table["chip"]["peak_tflops_bf16"] / (table["chip"]["neuroncores"] * table["core"]["peak_tflops_bf16"])
    assert lo <= ratio <= hi


def test_memory_sizes(device: Device) -> None:
    memory = device.table["memory"]
    assert device.partitions * device.sbuf_bytes == memory["sbuf_mib"] * 2**20
    assert device.partitions * device.psum_bytes == memory["psum_mib"] * 2**20
    assert device.psum_banks * device.psum_bank_bytes == device.psum_bytes
    assert device.limits["gemm_moving_fmax"] * 4 == device.psum_bank_bytes


@pytest.mark.parametrize(("name", "reserved"), [("gen2", 16384), ("gen3", 16384 + 8), ("gen4", 16384 + 8)])
def test_usable_sbuf_is_what_is_not_reserved(name: str, reserved: int) -> None:
    chip = get_device(name)
    assert chip.sbuf_bytes - chip.sbuf_usable_bytes == reserved


@pytest.mark.parametrize(("name", "usable"), [("trn1", 180_224), ("trn2", 212_984), ("trn3", 245_752)])
def test_usable_sbuf_bytes(name: str, usable: int) -> None:
    assert get_device(name).sbuf_usable_bytes == usable


def test_dma_figures(device: Device) -> None:
    dma = device.dma
    engines = dma["engines_per_core"]
    assert engines * dma["engine_bandwidth_sustained_gbs"] == dma["core_bandwidth_sustained_gbs"]
    assert dma["engine_bandwidth_sustained_gbs"] < dma["engine_bandwidth_theoretical_gbs"]
    assert engines * registry()["common"]["geometry"]["dma_partitions_per_engine"] == device.partitions
    assert engines * device.table["chip"]["neuroncores"] == device.table["chip"]["dma_engines"]


def test_hbm_bandwidth_is_shared_evenly(device: Device) -> None:
    chip, core = device.table["chip"], device.table["core"]
    assert core["hbm_bandwidth_gbs"] * chip["neuroncores"] == chip["hbm_bandwidth_gbs"]


def test_gpsimd_lanes_fill_its_processors() -> None:
    gpsimd = get_device("trn2").engine["gpsimd"]
    bits = gpsimd["processors"] * gpsimd["simd_bits"]
    assert [gpsimd[f"lanes_{width}bit"] * width for width in (32, 16, 8)] == [bits] * 3


def test_start_partition_rules_cover_every_height() -> None:
    rules = registry()["common"]["start_partition_rule"]
    heights = sorted(n for rule in rules for n in range(rule["min_partitions"], rule["max_partitions"] + 1))
    assert heights == list(range(1, 129))
    for rule in rules:
        assert all(start + rule["max_partitions"] <= 128 for start in rule["allowed_start"])


@pytest.mark.parametrize("table", ["features", "engine", "limits"])
def test_generations_answer_the_same_questions(table: str) -> None:
    keys = [set(getattr(get_device(name), table)) for name in ("trn1", "trn2", "trn3")]
    assert keys[0] == keys[1] == keys[2]


def test_timing_has_every_parameter_of_the_model(device: Device) -> None:
    model = {
        "act_fixed_ns", "act_table_load_ns", "dma_completion_ns", "dma_issue_interval_ns", "dma_small_write_ns",
        "dma_trigger_latency_ns", "kernel_epilogue_us", "kernel_preamble_us", "scalar_overhead_cycles",
        "semaphore_latency_ns", "tensor_issue_overhead_cycles", "tensor_latency_ns", "vector_latency_cycles",
        "vector_overhead_cycles",
    }  # fmt: skip
    assert model <= set(device.timing)
    assert all(device.timing[key] >= 0 for key in model)


def test_registry_lists_its_devices() -> None:
    meta = registry()["meta"]
    assert set(meta["devices"]) == set(registry()["device"])
    assert set(meta["schedulable"]) == set(CHIPS)
    assert meta["default_device"] == resolve_target().name


# Inheritance.


def test_inherited_and_overridden_values() -> None:
    inf2, trn1 = get_device("inf2"), get_device("trn1")
    assert inf2.timing == trn1.timing
    assert inf2.marketing_name == "AWS Inferentia2"
    assert (inf2.table["interconnect"]["chip_bandwidth_gbs"], trn1.table["interconnect"]["chip_bandwidth_gbs"]) == (
        206,
        384,
    )
    assert inf2.table["interconnect"]["hop_latency_us"] == trn1.table["interconnect"]["hop_latency_us"]


@pytest.mark.parametrize(("name", "prefix"), [("inf2", "inf2."), ("trn1n", "trn1n."), ("trn1", "trn1.")])
def test_products_are_not_inherited(name: str, prefix: str) -> None:
    instances = get_device(name).table["instance"]
    assert instances
    assert all(instance.startswith(prefix) for instance in instances)


# Names.


TARGETS = [  # name, device, generation, largest LNC
    ("trn1", "trn1", 2, 1),
    ("trn1n", "trn1n", 2, 1),
    ("inf2", "inf2", 2, 1),
    ("gen2", "trn1", 2, 1),
    ("trn2", "trn2", 3, 2),
    ("gen3", "trn2", 3, 2),
    ("trn3", "trn3", 4, 2),
    ("gen4", "trn3", 4, 2),
]


@pytest.mark.parametrize(("name", "chip", "generation", "lnc"), TARGETS)
def test_target_names(name: str, chip: str, generation: int, lnc: int) -> None:
    found = get_device(name)
    assert (found.name, found.generation, found.max_lnc) == (chip, generation, lnc)
    assert found.nki_target == f"gen{generation}"
    assert get_device(f" {name.upper()} ") is found


def test_every_target_name_is_tested() -> None:
    assert {row[0] for row in TARGETS} == set(TARGET_NAMES)


def test_unknown_name_lists_the_names() -> None:
    with pytest.raises(TileValueError) as caught:
        get_device("trn9")
    assert "'trn9'" in str(caught.value)
    assert all(name in str(caught.value) for name in TARGET_NAMES)


def test_inf1_has_no_nki() -> None:
    assert "inf1" in registry()["device"]
    with pytest.raises(TileUnsupportedError, match="inf1 .* has no NKI"):
        get_device("inf1")


# Choice of the target.


def test_default_target_is_trn2() -> None:
    assert resolve_target().name == "trn2"


def test_argument_wins_over_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    monkeypatch.setenv("NKI_NC_VERSION", "gen2")
    assert resolve_target("inf2").name == "inf2"
    assert resolve_target().name == "trn3"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "")
    assert resolve_target().name == "trn1"


@pytest.mark.parametrize("variable", TARGET_VARIABLES)
@pytest.mark.parametrize(("value", "error"), [("trn9", TileValueError), ("inf1", TileUnsupportedError)])
def test_bad_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, error: type[Exception]
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(error, match=f"{variable}.*{value}"):
        resolve_target()


def test_a_device_is_its_own_target() -> None:
    trn3 = get_device("trn3")
    assert resolve_target(trn3) is trn3


def test_target_of_the_wrong_type() -> None:
    wrong: Any = 3
    with pytest.raises(TileTypeError, match="int"):
        resolve_target(wrong)


# A device is a value.


def test_frozen_all_the_way_down(device: Device) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        device.name = "x"  # type: ignore[misc]
    mappings: list[Any] = [device.timing, device.table, device.table["engine"]["tensor"], registry()]
    for mapping in mappings:
        with pytest.raises(TypeError):
            mapping["x"] = 1
    assert isinstance(device.features["lnc"], tuple)


def test_copies_are_the_same_device(device: Device) -> None:
    assert pickle.loads(pickle.dumps(device)) is device
    assert copy.deepcopy(device) is device


def test_has() -> None:
    assert get_device("trn3").has("nc_matmul_mx") and not get_device("trn2").has("nc_matmul_mx")
    with pytest.raises(KeyError):
        get_device("trn2").has("no_such_feature")
    with pytest.raises(KeyError, match="yes-or-no"):
        get_device("trn2").has("lnc")


def test_nanoseconds() -> None:
    assert get_device("trn2").nanoseconds("tensor", 512) == pytest.approx(213.33, rel=1e-4)
    assert get_device("trn1").nanoseconds("vector", 16384) == pytest.approx(14_629, rel=1e-4)


def test_varied_changes_only_what_it_names() -> None:
    trn2 = get_device("trn2")
    fast = trn2.varied("fast-dma", {"timing": {"dma_issue_interval_ns": 300}})
    assert (fast.name, fast.timing["dma_issue_interval_ns"]) == ("fast-dma", 300)
    assert trn2.timing["dma_issue_interval_ns"] == 600
    assert {**fast.timing, "dma_issue_interval_ns": 600} == dict(trn2.timing)
    assert fast.clocks == trn2.clocks
    again = pickle.loads(pickle.dumps(fast))
    assert (again.name, again.timing) == (fast.name, fast.timing)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"timing": {"dma_issue_intervall_ns": 1}}, "what-if.timing: no key 'dma_issue_intervall_ns'"),
        ({"timing": 3}, "what-if: 'timing' is a table"),
        ({"marketing_name": {"x": 1}}, "what-if: 'marketing_name' is no table"),
    ],
)
def test_varied_refuses_unknown_keys(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(TileValueError, match=message):
        get_device("trn2").varied("what-if", overrides)


def test_incomplete_table_names_the_key() -> None:
    table = {key: value for key, value in get_device("trn2").table.items() if key != "memory"}
    with pytest.raises(TileValueError, match="'partial'.*'memory'"):
        Device.from_table("partial", table)


def test_estimates_tell_what_a_prediction_rests_on() -> None:
    assert "timing.semaphore_latency_ns" in estimates("trn2")
    assert "engine.tensor.clock_ghz" not in estimates("trn2")
    assert estimates("gen2") == estimates("trn1")
    assert "timing.vector_latency_cycles" in estimates("inf2"), "inherited with the value"
    assert "interconnect.topology" in estimates("inf2") - estimates("trn1"), "its own"
    for name in CHIPS:
        for key in estimates(name):
            value: Any = get_device(name).table
            for part in key.replace('"', "").split("."):
                value = value[part]
