"""Frozen device models, read from `devices.toml` at first use, and the choice of the target.

Does not hold instruction costs: their formulas belong to the instruction records; here are only the parameters.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tilelang.errors import TileTypeError, TileUnsupportedError, TileValueError

__all__ = ["DEFAULT_TARGET", "TARGET_NAMES", "Device", "estimates", "get_device", "registry", "resolve_target"]

DEFAULT_TARGET = "trn2"
TARGET_VARIABLES = ("NEURON_PLATFORM_TARGET_OVERRIDE", "NKI_NC_VERSION")

# Target name -> device of `devices.toml`. A generation name means its first training chip.
_TARGETS = {
    "trn1": "trn1",
    "trn1n": "trn1n",
    "inf2": "inf2",
    "gen2": "trn1",
    "trn2": "trn2",
    "gen3": "trn2",
    "trn3": "trn3",
    "gen4": "trn3",
}
TARGET_NAMES: tuple[str, ...] = tuple(_TARGETS)

# These describe what is sold, not the core, so a device does not inherit them.
_NOT_INHERITED = ("instance", "claimed_by_seed")


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({key: _freeze(item) for key, item in value.items()})
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


def _thaw(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thaw(item) for key, item in value.items()}
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value


def _merge(base: dict[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `override`, table by table."""
    merged = dict(base)
    for key, value in override.items():
        known = merged.get(key)
        merged[key] = _merge(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
    return merged


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """One device of `devices.toml`, as seen from one NeuronCore.

    Sizes are bytes per partition, clocks GHz, times in the unit of their key. Devices compare by identity; `get_device`
    returns the same object for the same device. A missing key of a mapping raises KeyError, never a default.
    """

    name: str
    marketing_name: str
    generation: int  # 2, 3, 4: the NeuronCore version, also what `nc_version` reports
    nki_target: str  # "gen2", "gen3", "gen4"
    partitions: int
    clocks: Mapping[str, float]  # engine ("tensor", "vector", "scalar", "gpsimd", "sync") -> GHz
    sbuf_bytes: int
    sbuf_usable_bytes: int  # what kernels may occupy; the rest is reserved
    psum_bytes: int
    psum_banks: int
    psum_bank_bytes: int
    max_lnc: int  # physical cores that a logical core may join
    features: Mapping[str, Any]
    timing: Mapping[str, float]
    dma: Mapping[str, Any]
    engine: Mapping[str, Any]  # per engine: widths, passes per format, performance modes
    limits: Mapping[str, Any]  # tile limits, such as `gemm_moving_fmax`
    table: Mapping[str, Any]  # the whole device table, inheritance resolved

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> Device:
        """The device that a table laid out like `[device.<name>]` describes; a missing key raises TileValueError."""
        common = registry()["common"]
        geometry = common["geometry"]
        try:
            memory, features = table["memory"], table["features"]
            return cls(
                name=name,
                marketing_name=table["marketing_name"],
                generation=table["neuroncore_version"],
                nki_target=table["nki_target"],
                partitions=geometry["partitions"],
                clocks=_freeze({engine: row["clock_ghz"] for engine, row in table["engine"].items()}),
                sbuf_bytes=memory["sbuf_kib_per_partition"] * 1024,
                sbuf_usable_bytes=memory["sbuf_usable_bytes_per_partition"],
                psum_bytes=memory["psum_kib_per_partition"] * 1024,
                psum_banks=geometry["psum_banks_per_partition"],
                psum_bank_bytes=geometry["psum_bank_bytes_per_partition"],
                max_lnc=max(features["lnc"]),
                features=_freeze(features),
                timing=_freeze(table["timing"]),
                dma=_freeze(table["dma"]),
                engine=_freeze(table["engine"]),
                limits=common["tile_limits"],
                table=_freeze(table),
            )
        except KeyError as missing:
            raise TileValueError(f"device {name!r}: the table has no key {missing}") from None

    def varied(self, name: str, overrides: Mapping[str, Any]) -> Device:
        """A copy called `name` with some values replaced, for what-if studies.

        `overrides` is nested like the table: `device.varied("fast-dma", {"timing": {"dma_issue_interval_ns": 300}})`.
        A key that the device does not have raises TileValueError.
        """
        _require_known(self.table, overrides, name)
        return Device.from_table(name, _merge(_thaw(self.table), overrides))

    def has(self, feature: str) -> bool:
        """Whether the device has `feature`, a boolean key of its table `features`; an unknown name raises KeyError."""
        value = self.features[feature]
        if not isinstance(value, bool):
            raise KeyError(f"{feature} is not a yes-or-no feature: {value!r}")
        return value

    def nanoseconds(self, engine: str, cycles: float) -> float:
        """Duration of `cycles` cycles of `engine`, in ns."""
        return cycles / self.clocks[engine]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Device {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if _TARGETS.get(self.name) == self.name and get_device(self.name) is self:
            return get_device, (self.name,)
        return Device.from_table, (self.name, _thaw(self.table))


def _require_known(table: Mapping[str, Any], overrides: Mapping[str, Any], path: str) -> None:
    for key, value in overrides.items():
        if key not in table:
            raise TileValueError(f"{path}: no key {key!r}; known: {', '.join(sorted(table))}")
        if isinstance(table[key], Mapping) != isinstance(value, Mapping):
            raise TileValueError(f"{path}: {key!r} is {'a table' if isinstance(table[key], Mapping) else 'no table'}")
        if isinstance(value, Mapping):
            _require_known(table[key], value, f"{path}.{key}")


@cache
def _text() -> str:
    return Path(__file__).with_name("devices.toml").read_text(encoding="utf-8")


@cache
def registry() -> Mapping[str, Any]:
    """The whole of `devices.toml`, read-only, with every device's inheritance resolved.

    Tables: `meta`, `common`, `cost` (documentation of the formulas), `device`, `collectives`.
    """
    document = tomllib.loads(_text())
    devices: dict[str, dict[str, Any]] = document["device"]
    for name, table in devices.items():
        devices[name] = _resolve(devices, name, table)
    frozen: Mapping[str, Any] = _freeze(document)
    return frozen


def _resolve(devices: Mapping[str, dict[str, Any]], name: str, table: dict[str, Any]) -> dict[str, Any]:
    parent = table.get("inherits")
    if parent is None:
        return table
    base = {
        key: value for key, value in _resolve(devices, parent, devices[parent]).items() if key not in _NOT_INHERITED
    }
    return _merge(base, table)


@cache
def _device(name: str) -> Device:
    return Device.from_table(name, registry()["device"][name])


@cache
def get_device(name: str) -> Device:
    """The device that target `name` means, in any case: trn1, trn1n, inf2, gen2, trn2, gen3, trn3 or gen4.

    Raises TileUnsupportedError for inf1, which NKI cannot target, and TileValueError for any other name.
    """
    key = name.strip().lower()
    if key == "inf1":
        raise TileUnsupportedError(
            "inf1 (NeuronCore-v1) has no NKI: kernels cannot target it; targets: " + ", ".join(TARGET_NAMES)
        )
    if key not in _TARGETS:
        raise TileValueError(f"unknown target {name!r}; targets: {', '.join(TARGET_NAMES)}")
    return _device(_TARGETS[key])


def resolve_target(target: str | Device | None = None) -> Device:
    """The device to build for: `target`, else the environment, else trn2.

    The environment variables are NEURON_PLATFORM_TARGET_OVERRIDE and then NKI_NC_VERSION, read at each call;
    an empty one counts as unset. Raises as `get_device`, naming the variable if the name came from one, and
    TileTypeError if `target` is neither a name nor a Device.
    """
    if isinstance(target, Device):
        return target
    if target is not None:
        if not isinstance(target, str):
            raise TileTypeError(f"target must be a name or a Device, not {type(target).__name__} ({target!r})")
        return get_device(target)
    for variable in TARGET_VARIABLES:
        value = os.environ.get(variable)
        if value:
            try:
                return get_device(value)
            except (TileUnsupportedError, TileValueError) as error:
                raise type(error)(f"environment variable {variable}: {error}") from None
    return get_device(DEFAULT_TARGET)


_HEADER = re.compile(r"\[([^\[\]]+)\]")
_ESTIMATE = re.compile(r"(\w+) = [^#]*# *estimate")


@cache
def estimates(name: str) -> frozenset[str]:
    """Dotted keys of target `name` whose value is an estimate rather than a vendor figure, e.g. `timing.act_fixed_ns`.

    Taken from the comments of `devices.toml`; an inherited value keeps its mark unless the device overrides it.
    """
    return _estimated_keys(get_device(name).name)


def _estimated_keys(name: str) -> frozenset[str]:
    found: set[str] = set()
    parent = registry()["device"][name].get("inherits")
    if parent is not None:
        found.update(key for key in _estimated_keys(parent) if key.split(".")[0] not in _NOT_INHERITED)
    prefix = f"device.{name}"
    table = ""
    for line in _text().splitlines():
        if header := _HEADER.match(line):
            table = header[1]
        elif table == prefix or table.startswith(prefix + "."):
            key = ".".join(filter(None, (table[len(prefix) + 1 :], line.split(" = ")[0])))
            found.discard(key)
            if _ESTIMATE.match(line):
                found.add(key)
    return frozenset(found)
