"""Prints reports for people as tables, trees and lines, from values of the model alone."""
