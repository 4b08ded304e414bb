"""Write a wheel's bill of materials beside it, as CycloneDX 1.6 JSON: scripts/sbom.py WHEEL

It lists what is installed in this environment and what fedsac reaches by its requirements: those of the package itself
(scope "required") and those of the extras that users install ("optional"). Nothing is asked of any server, and the same
environment and wheel give the same bytes.
"""

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import quote

from packaging.requirements import Requirement

NOT_FOR_USERS = {"dev", "docs"}  # extras of those who work on fedsac


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def purl(found: metadata.Distribution) -> str:
    return f"pkg:pypi/{canonical(found.name)}@{quote(found.version)}"


def needed(
    found: metadata.Distribution, extras: frozenset[str]
) -> Iterator[tuple[metadata.Distribution, frozenset[str]]]:
    """What is installed of the requirements of a distribution with these extras; each comes with its extras."""
    for text in found.requires or ():
        wanted = Requirement(text)
        marker = wanted.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            continue
        try:
            yield metadata.distribution(wanted.name), frozenset(wanted.extras) or frozenset({""})
        except metadata.PackageNotFoundError:
            continue  # of an extra that is not installed here


def reached(root: str, extras: frozenset[str]) -> dict[str, set[str]]:
    """The distributions that one reaches, by purl, and the purls of what each needs."""
    found: dict[str, set[str]] = {}
    todo, seen = [(metadata.distribution(root), extras)], set()
    while todo:
        one, own = todo.pop()
        if (purl(one), own) in seen:
            continue
        seen.add((purl(one), own))
        parts = [(part, also) for part, also in needed(one, own) if canonical(part.name) != canonical(root)]
        found.setdefault(purl(one), set()).update(purl(part) for part, _ in parts)
        todo += parts
    return found


def described(found: metadata.Distribution) -> dict[str, object]:
    named = {"type": "library", "bom-ref": purl(found), "name": found.name, "version": found.version}
    expression = found.metadata.get("License-Expression")
    return named | {"purl": purl(found)} | ({"licenses": [{"expression": expression}]} if expression else {})


def bill(root: str = "fedsac", wheel: Path | None = None) -> dict[str, object]:
    """The bill of materials of an installed distribution."""
    own = metadata.distribution(root)
    extras = frozenset(own.metadata.get_all("Provides-Extra") or ()) - NOT_FOR_USERS | {""}
    required, everything = reached(root, frozenset({""})), reached(root, extras)
    installed = {purl(one): one for one in metadata.distributions()}
    component = described(own)
    if wheel is not None:
        component["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    parts = [
        described(installed[ref]) | {"scope": "required" if ref in required else "optional"}
        for ref in sorted(everything)
        if ref != purl(own)
    ]
    body = {
        "metadata": {"component": component},
        "components": parts,
        "dependencies": [{"ref": ref, "dependsOn": sorted(needs)} for ref, needs in sorted(everything.items())],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return head | body


if __name__ == "__main__":
    wheel = Path(sys.argv[1])
    out = wheel.with_suffix(".cdx.json")
    made = bill("fedsac", wheel)
    out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(f"{out}: {len(made['components'])} components")  # type: ignore[arg-type]
