"""What JUnit's XML says of a run of ours."""

from __future__ import annotations

from xml.etree import ElementTree

__all__ = ["properties_of"]


def properties_of(case: ElementTree.Element) -> dict[str, str]:
    """Return our properties of a test case."""
    properties = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
    return {name: value for name, value in properties.items() if name.startswith("intercode_")}
