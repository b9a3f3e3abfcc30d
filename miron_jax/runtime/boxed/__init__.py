"""What is put into the box beside a program that a model wrote; these files run there, and import nothing of this package.

Arrives: a program and the arguments of one test.  Leaves: what the function returned, written to descriptor 3.  They
deliberately do not know what it should have returned.
"""
