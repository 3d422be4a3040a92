#!/usr/bin/env bash
# Takes the JSON schema, the units and the transformations from Grafana's own packages (Apache-2.0). Needs node and npm;
# the tests do not, since what comes out is committed.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cp "$here"/{package.json,grafana.ts,tsconfig.json,lists.cjs,smaller.py} "$work"
cd "$work"
npm install --ignore-scripts --no-audit --no-fund --silent
node_modules/.bin/ts-json-schema-generator --path grafana.ts --type Grafana --tsconfig tsconfig.json \
    --no-type-check --no-top-ref --expose none --out whole.json
python3 smaller.py whole.json > "$here/grafana.schema.json"
node lists.cjs "$here"
