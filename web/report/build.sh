#!/bin/sh
# Makes page.js, page.css and licences.txt of mobileprep/building/report/page anew, or into the folder named.
# Needs node and npm; what is installed is pinned by package-lock.json.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../mobileprep/building/report/page}
cd "$here"
npm ci --no-audit --no-fund --loglevel=error
npx esbuild src/main.js --bundle --minify --format=iife --target=es2020 --charset=ascii \
  --legal-comments=none --log-level=warning --outfile="$out/page.js"
npx esbuild src/style.css --minify --target=es2020 --charset=ascii --log-level=warning --outfile="$out/page.css"
node licences.js > "$out/licences.txt"
