"""Long measurements: resumable tables against published figures, and scale. ``python -m bench`` lists them."""
