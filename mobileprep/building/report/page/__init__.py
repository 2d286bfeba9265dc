"""Report as a single HTML page, with its data and the prebuilt program and style sheet.

``page.js`` and ``page.css`` are bundled from ``web/report`` by its ``build.sh``.
``licenses.txt`` contains the licenses of the bundled packages.
"""
