#!/usr/bin/env bash
# Install a wheel into an empty environment outside the repository, and use it there: scripts/try_wheel.sh PYTHON WHEEL
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
python=$(realpath "$1")
wheel=$(realpath "$2")
folder=$(realpath "$(mktemp -d)")
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH
cd "$folder"

"$python" -m venv environment
PATH=$folder/environment/bin:$PATH
python -m pip install --quiet --constraint "$repository/constraints.txt" "$wheel"
python -m pip check

installed=$(python -c 'import fedsac; print(fedsac.__path__[0])')
case $installed in
  "$folder"/*) ;;
  *) echo "fedsac was imported from $installed, not from the wheel" >&2; exit 1 ;;
esac
files() { cd "$1" && find . -type f ! -name '*.pyc' | sort; }
diff <(files "$repository/src/fedsac") <(files "$installed") ||
  { echo "the wheel has not the same files as src/fedsac: < are missing, > are too many" >&2; exit 1; }
for file in py.typed report/page.css report/page.js paper/printed.json; do
  test -f "$installed/$file" || { echo "the wheel lacks $file" >&2; exit 1; }
done

fedsac --help > help.txt
fedsac methods > methods.txt
grep -q fedsac-plus methods.txt
fedsac run --rounds 2 --clients 3 --hidden 16 --out first
rm first/report.html
fedsac report first
test -s first/report.html
echo "$(basename "$wheel") works in an empty environment"
