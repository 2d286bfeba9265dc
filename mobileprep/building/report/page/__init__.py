"""The report as one page of HTML: its data beside a program and a style that are made ahead.

``page.js`` and ``page.css`` are bundled from ``web/report`` by its ``build.sh``;
``licences.txt`` has the licences of what is bundled.
"""
