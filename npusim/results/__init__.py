"""What a run found: raw integers once, derived numbers, tables, saving and loading.

Nothing is imported here: the package root needs `views` without numpy.
"""
