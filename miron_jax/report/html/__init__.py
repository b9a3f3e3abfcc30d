"""Runs -> one HTML file that opens from a disk, without a network.

    page        the file: template, style and script of this folder
    pictures    SVG by matplotlib
    curves      steps of training -> numbers, which curves.js draws
    examples    samples -> compressed chunks

Arrives: `Run`s.  Leaves: bytes of one file.  It deliberately does not know how a score is made.  A
prompt may hold anything; the page's Content-Security-Policy lets only its own script run, by hash,
and the script only ever sets text.
"""
