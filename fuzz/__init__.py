"""Fuzz targets for everything that reads what others wrote; see README.md in this folder."""
