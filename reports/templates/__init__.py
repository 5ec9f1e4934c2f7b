"""Templates, style sheet and script of ``report.html``."""
