"""Privacy: mechanisms, accounting of epsilon, sensitivities of graphs with bounded degrees."""
