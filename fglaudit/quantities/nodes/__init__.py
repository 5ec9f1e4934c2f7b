"""What is asked of single nodes, or of pairs of them: numbers, classes, neighbours, where they lie."""
