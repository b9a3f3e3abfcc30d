"""eval-ua-tion-gen: sets of this project's own in the manner of Eval-UA-tion; `sets` puts them together."""
