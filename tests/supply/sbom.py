"""The software bill of materials: what an installation of this package has in it, with its extras.

The extra ray is left out: it has a lock of its own (``requirements/ray.txt``).

Run as ``python -m tests.supply.sbom``, which writes ``requirements/sbom.cdx.json`` (CycloneDX 1.6):
packages and what needs what as they are installed here, versions and hashes from the lock file. The
same lock file on the same Python gives the same bytes.
"""

from __future__ import annotations

import json
import platform
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tests.supply.licences import installed, licence_of
from tests.supply.locks import FOLDER, project, read_lock

__all__ = ["SBOM", "components", "main", "user_extras"]

SBOM = FOLDER / "sbom.cdx.json"

_DEVELOPMENT = {"test", "lint", "site", "supply"}  # extras that are for work on the package itself
_BY_ITSELF = {"ray"}


def user_extras() -> list[str]:
    """Return the extras that are for users, but for those that have a lock of their own."""
    return sorted(set(project()["optional-dependencies"]) - _DEVELOPMENT - _BY_ITSELF)


def needs(package: metadata.Distribution, extras: set[str]) -> dict[NormalizedName, set[str]]:
    """Return what a package with some extras needs, here or on macOS, and with which extras."""
    found: dict[NormalizedName, set[str]] = {}
    environments = [
        {"extra": extra, "sys_platform": system}
        for extra in extras or {""}
        for system in ("linux", "darwin")
    ]
    for line in package.requires or []:
        wanted = Requirement(line)
        if not wanted.marker or any(map(wanted.marker.evaluate, environments)):
            found.setdefault(canonicalize_name(wanted.name), set()).update(wanted.extras)
    return found


def components() -> dict[NormalizedName, tuple[bool, set[NormalizedName]]]:
    """Return what is needed: whether without any extra, and what it needs itself."""
    here = installed()
    found: dict[NormalizedName, tuple[bool, set[NormalizedName]]] = {}
    root = metadata.distribution(project()["name"])
    for required, extras in ((True, set[str]()), (False, set(user_extras()))):
        waiting = list(needs(root, extras).items())
        seen: set[tuple[NormalizedName, frozenset[str]]] = set()
        while waiting:
            name, wanted = waiting.pop()
            if (name, frozenset(wanted)) in seen:
                continue
            seen.add((name, frozenset(wanted)))
            below = needs(here[name], wanted)
            before = found.get(name, (required, set()))
            found[name] = before[0], before[1] | set(below)
            waiting += below.items()
    return dict(sorted(found.items()))


def main() -> None:
    """Write the bill."""
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    about = project()
    here = installed()
    pins = {pin.name: pin for pin in read_lock("all") if _is_installed(pin.name, pin.version, here)}

    def component(name: str, version: str, licence: str, **more: Any) -> Any:
        url = PackageURL("pypi", name=name, version=version)
        licences = [LicenseExpression(licence)] if licence else []
        return Component(
            type=ComponentType.LIBRARY, name=name, version=version, purl=url,
            bom_ref=str(url), licenses=licences, **more,
        )  # fmt: skip

    root = component(about["name"], about["version"], about["license"])
    made = {}
    for name, (required, _) in components().items():
        pin = pins[name]
        made[name] = component(
            name, pin.version, licence_of(here[name]),
            scope=ComponentScope.REQUIRED if required else ComponentScope.OPTIONAL,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=h) for h in sorted(pin.hashes)],
        )  # fmt: skip
    bom = Bom(components=made.values())
    bom.metadata.component = root
    bom.metadata.properties.add(Property(name="python", value=platform.python_version()[:4]))
    direct = needs(metadata.distribution(about["name"]), set(user_extras()))
    bom.register_dependency(root, [made[name] for name in sorted(direct)])
    for name, (_, below) in components().items():
        bom.register_dependency(made[name], [made[each] for each in sorted(below)])
    found = json.loads(JsonV1Dot6(bom).output_as_string())
    # Neither says anything of what is in it, and both differ each time.
    del found["serialNumber"], found["metadata"]["timestamp"]
    SBOM.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def _is_installed(name: str, version: str, here: dict[str, metadata.Distribution]) -> bool:
    return name in here and here[name].version == version


if __name__ == "__main__":
    main()
