"""Reports in one HTML file: static markup and pictures, one style sheet, one script, no
requests.
"""
