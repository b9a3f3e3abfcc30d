"""Generators of benchmark items that come with this project: miron-gen, and eval-ua-tion-gen with
its suites."""
