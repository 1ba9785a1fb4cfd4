"""Platforms: one file each, and one line here. A platform is a device that candidates run and are timed on."""

from kernelevolve.errors import SettingError, UnknownNameError
from kernelevolve.platforms.base import Platform, cache_dir
from kernelevolve.platforms.cpu import Cpu
from kernelevolve.platforms.cuda import Cuda

PLATFORMS: dict[str, Platform] = {platform.name: platform for platform in (Cuda(), Cpu())}
"""By name, best first."""


def resolve(name: str = "auto") -> Platform:
    """The platform called `name`, or the best one that this machine has.

    Raises UnknownNameError, or SettingError when the platform exists but not on this machine.
    """
    if name == "auto":
        return next(platform for platform in PLATFORMS.values() if platform.available()[0])
    if name not in PLATFORMS:
        raise UnknownNameError("platform", name, [*PLATFORMS, "auto"])
    here, reason = PLATFORMS[name].available()
    if not here:
        raise SettingError(f"platform {name!r} is not available here: {reason}")
    return PLATFORMS[name]


__all__ = ["PLATFORMS", "Platform", "cache_dir", "resolve"]
