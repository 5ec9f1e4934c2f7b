"""Methods as a paper's authors' code has them where the text has them otherwise; no protocols of the package."""
