"""eval-ua-tion-gen: generated sets in the manner of Eval-UA-tion; `sets` lists them."""
