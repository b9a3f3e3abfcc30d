"""Reports of runs: on screen, compared, as a page, in other programs' layouts."""
