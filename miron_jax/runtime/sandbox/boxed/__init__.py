"""Files that are put into the sandbox with a program that a model wrote; they import nothing of
this package.

Arrives: a program and the arguments of one test.  Leaves: the value that the function returned,
written to descriptor 3.  They deliberately do not know the expected value.
"""
