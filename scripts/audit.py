"""Ask a public service for known vulnerabilities of what is installed: scripts/audit.py FOLDER

pip-audit is installed into an environment of its own, in the folder. Status 1 where something is known; where pip-audit
or its service cannot be reached, one line says so, and that is no failure.
"""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

PIP_AUDIT = "pip-audit==2.10.1"
SECONDS = 600


def installed(folder: Path) -> str | None:
    """pip-audit's command, installed if need be; None where that cannot be done."""
    command = folder / "bin" / "pip-audit"
    if not command.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", PIP_AUDIT]
        if made.returncode or subprocess.run(pip, check=False, capture_output=True).returncode:
            return None
    return str(command)


def audit(command: Sequence[str], report: Path) -> int:
    """Run pip-audit, which writes the report when it has come to an end; returns the status."""
    report.unlink(missing_ok=True)
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        last = str(error)
    try:
        found = json.loads(report.read_text(encoding="utf-8"))["dependencies"]
    except (OSError, ValueError, KeyError):
        print(f"audit: not done, pip-audit's service cannot be reached ({last[:200]})")
        return 0
    skipped = [one for one in found if "skip_reason" in one]  # also where a mirror answers that has no such list
    if len(skipped) == len(found):
        print(f"audit: not done, the service that answered knows none of {len(found)} packages")
        return 0
    known = [(one["name"], one["version"], flaw["id"]) for one in found for flaw in one.get("vulns", ())]
    for name, version, flaw in known:
        print(f"audit: {name} {version}: {flaw}")
    asked = len(found) - len(skipped)
    print(f"audit: {asked} packages, {len(known)} known vulnerabilities; {len(skipped)} could not be looked up")
    return int(bool(known))


def main(folder: Path) -> int:
    command = installed(folder)
    if command is None:
        print("audit: not done, pip-audit cannot be installed")
        return 0
    report = folder / "report.json"
    packages = sysconfig.get_paths()["purelib"]
    asked = [command, "--progress-spinner", "off", "--path", packages, "--format", "json", "--output", str(report)]
    return audit(asked, report)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
