"""Why a node is refused: one module for each family of operators, as in `lowering`.

A constraint gets a node and the program, and says in words why XNNPACK cannot compute it, or None. `support` puts them
together to the table of what the backend takes.
"""
