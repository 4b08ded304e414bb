#!/bin/sh
# A federation of two sites, its server and they each run in the image, by a user that the image does not know: whose
# folders they are. Ends with `verify`. Usage, as root: scripts/try_image.sh [IMAGE]
# Where there is neither overlayfs nor a user namespace: export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
set -eu
image=${1:-localhost/fedsac}
user=23456:23456
work=$(mktemp -d)
container=$(buildah from "$image")
running=""
end() {
  for id in $running; do kill "$id" 2>/dev/null || true; done
  wait
  buildah rm "$container" >/dev/null
  rm -rf "$work"
}
trap end EXIT INT TERM
inside() { buildah run --user "$user" --volume "$work:/federation" "$container" -- "$@"; }

found=$(buildah run --user 0 "$container" -- find / -xdev \( -name '*.key' -o -name key -o -name ledger.jsonl -o -path '/src*' \) \
  -not -path '/proc/*' -not -path '/usr/*' -not -path '/opt/fedsac/lib/*')
test -z "$found" || { echo "in the image: $found"; exit 1; }

chown 23456:23456 "$work"
inside fedsac federation init /federation/trial --sites a,b --address 127.0.0.1:19792
inside python -c "
from pathlib import Path
import numpy as np
draw, trial = np.random.default_rng(0), Path('/federation/trial')
for name, rows in (('validation', 200), ('a/data', 100), ('b/data', 200)):
    x = draw.normal(size=(rows, 6))
    np.savez(trial / f'{name}.npz', x=x, y=(x[:, 0] + x[:, 1] > 0).astype(int))
for toml in (trial / 'federation.toml', trial / 'a' / 'site.toml', trial / 'b' / 'site.toml'):
    text = toml.read_text().replace('.csv', '.npz').replace('rounds = 20', 'rounds = 3').replace('= 9093', '= 19793')
    toml.write_text(text)
"
for what in "server trial" "site trial/a" "site trial/b"; do
  inside fedsac federation ${what% *} "/federation/${what#* }" &
  running="$running $!"
done
inside fedsac federation run /federation/trial
inside fedsac federation verify /federation/trial
inside fedsac federation verify /federation/trial/a
