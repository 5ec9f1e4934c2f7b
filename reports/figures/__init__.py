"""Inline SVG."""
