"""YAML files of the suites that come with the package."""
