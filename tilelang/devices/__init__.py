"""Device models: `devices.toml` holds the numbers and their sources, `Device` the ones that other packages use."""

from tilelang.devices.device import (
    DEFAULT_TARGET,
    TARGET_NAMES,
    Device,
    estimates,
    get_device,
    registry,
    resolve_target,
)

__all__ = ["DEFAULT_TARGET", "TARGET_NAMES", "Device", "estimates", "get_device", "registry", "resolve_target"]
