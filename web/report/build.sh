#!/bin/sh
# Build page.js, page.css, and licenses.txt in mobileprep/building/report/page, or in a directory.
# Needs node and npm. package-lock.json pins the packages.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../mobileprep/building/report/page}
cd "$here"
npm ci --no-audit --no-fund --loglevel=error
npx esbuild src/main.js --bundle --minify --format=iife --target=es2020 --charset=ascii \
  --legal-comments=none --log-level=warning --outfile="$out/page.js"
npx esbuild src/style.css --minify --target=es2020 --charset=ascii --log-level=warning --outfile="$out/page.css"
node licenses.js > "$out/licenses.txt"
