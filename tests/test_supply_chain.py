"""What the package is made of: nothing that executes what it reads, and a list of everything it stands on."""

import ast
import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from scripts.audit import audit
from scripts.sbom import bill, canonical

ROOT = Path(__file__).resolve().parents[1]
EXECUTING = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
LOADERS = {"torch.load", "torch.jit.load", "yaml.load", "yaml.unsafe_load", "pandas.read_pickle", "pd.read_pickle"}


def executing(source):
    """What in a source would execute what it reads: lines and names."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, name.name) for name in node.names if name.name.split(".")[0] in EXECUTING]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{name.name}" for name in node.names)]
            found += [(node.lineno, name) for name in names if name.split(".")[0] in EXECUTING or name in LOADERS]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in LOADERS or called in ("eval", "exec", "__import__", "builtins.eval", "builtins.exec"):
                found.append((node.lineno, called))
        elif (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and not (isinstance(node.value, ast.Constant) and node.value.value is False)
        ):
            found.append((node.lineno, "allow_pickle"))
    return found


def test_nothing_that_is_read_is_executed():
    found = {str(path): executing(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")}
    assert len(found) > 200
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "def f():\n    from pickle import loads", "import joblib as j", "from torch import load"),
        *("torch.load(path)", "torch.load(path, weights_only=True)", "eval(text)", "exec('1')", "__import__(name)"),
        *("np.load(path, allow_pickle=True)", "np.load(path, allow_pickle=asked)"),
    ],
)
def test_the_search_finds_them(source):
    assert executing(source)


def test_the_search_leaves_others_alone():
    assert not executing("model.eval()\nnp.load(path, allow_pickle=False)\nimport json\nregex = re.compile('x')")


def test_the_bill_of_materials_has_every_dependency_as_it_is_installed(tmp_path):
    wheel = tmp_path / "fedsac.whl"
    wheel.write_bytes(b"abc")
    made = bill("fedsac", wheel)
    assert json.loads(json.dumps(made)) == made == bill("fedsac", wheel)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    own = made["metadata"]["component"]
    assert own["hashes"][0]["content"].startswith("ba7816bf8f01cfea")  # SHA-256 of abc, as in FIPS 180
    parts = {part["name"].lower().replace("_", "-"): part for part in made["components"]}
    for name in ("numpy", "scipy", "torch", "safetensors", "requests"):
        assert parts[name]["version"] == metadata.version(name)
        assert parts[name]["scope"] == "required"
    assert parts["urllib3"]["scope"] == "required"  # through requests
    assert parts["flwr"]["scope"] == "optional"
    assert not {"pytest", "ruff", "mkdocs", "fedsac"} & set(parts)
    refs = {part["bom-ref"] for part in made["components"]} | {own["bom-ref"]}
    assert len(refs) == len(made["components"]) + 1
    assert {one["ref"] for one in made["dependencies"]} == refs
    assert {ref for one in made["dependencies"] for ref in one["dependsOn"]} <= refs
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9-]+@[A-Za-z0-9.%!_-]+", ref) for ref in refs)
    assert canonical("Typing_Extensions.x") == "typing-extensions-x"


def test_an_audit_whose_service_cannot_be_reached_is_a_line_and_no_failure(tmp_path, capsys):
    fails = [sys.executable, "-c", "raise SystemExit('connection refused')"]
    assert audit(fails, tmp_path / "report.json") == 0
    assert capsys.readouterr().out == "audit: not done, pip-audit's service cannot be reached (connection refused)\n"
    skips = {"dependencies": [{"name": "a", "skip_reason": "not found"}]}
    writes = f"import pathlib; pathlib.Path({str(tmp_path / 'report.json')!r}).write_text({json.dumps(skips)!r})"
    assert audit([sys.executable, "-c", writes], tmp_path / "report.json") == 0
    assert "not done" in capsys.readouterr().out  # nothing looked up is not the same as nothing found
    assert audit(["/nowhere/pip-audit"], tmp_path / "report.json") == 0


def test_an_audit_that_finds_something_fails(tmp_path, capsys):
    report = tmp_path / "report.json"
    found = {
        "dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1"}]}, {"name": "b", "version": "2"}]
    }
    writes = f"import pathlib; pathlib.Path({str(report)!r}).write_text({json.dumps(found)!r}); raise SystemExit(1)"
    assert audit([sys.executable, "-c", writes], report) == 1
    assert "a 1: PYSEC-1" in capsys.readouterr().out
    found["dependencies"][0]["vulns"] = []
    writes = f"import pathlib; pathlib.Path({str(report)!r}).write_text({json.dumps(found)!r})"
    assert audit([sys.executable, "-c", writes], report) == 0
