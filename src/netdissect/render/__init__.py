"""Prints reports for people: Rich tables, trees and streamed lines. Pure functions of the model's
values.
"""
